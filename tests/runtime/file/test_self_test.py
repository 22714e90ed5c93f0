"""A self-test keeps its numbers in JSON, and gives a detector the outputs that it has.

`test_metadata.py` has malformed self-tests.
"""

import pytest
import torch
from pydantic import TypeAdapter
from pydantic_core import PydanticCustomError

from lensbox.runtime.file.metadata import Extra
from lensbox.runtime.file.self_test import Expected, ExpectedLoss, SelfTest, Tolerance, Tolerances, fitted

BOXES = torch.tensor([[0.0, 1, 2, 3.5], [4, 5, 6, 7]])
EXTRAS = {"cell": torch.tensor([1.0, 2]).double(), "eyes": torch.arange(8.0).view(2, 2, 2).double()}
WIDE = Tolerances(*[Tolerance(1, 1, 1, {"cell": 0.5, "eyes": 2})] * 2)
SHAPES = {"cell": Extra((), "values"), "eyes": Extra((2, 2), "points")}


def self_test(labels: torch.Tensor | None = None) -> SelfTest:
    image = torch.arange(12, dtype=torch.uint8).view(3, 2, 2)
    expected = Expected(BOXES, torch.tensor([0.75, 0.5]), labels, EXTRAS)
    return SelfTest(image, 0.5, 0.25, expected, ExpectedLoss(BOXES, BOXES, 0.125), WIDE)


def test_json_keeps_every_number() -> None:
    adapter, test = TypeAdapter(SelfTest), self_test(torch.tensor([1, 0]))
    read = fitted(adapter.validate_json(adapter.dump_json(test)), ("a", "b"), SHAPES)
    assert torch.equal(read.image, test.image)
    assert read.tolerance == test.tolerance
    assert read.expected.labels is not None
    assert read.expected.labels.tolist() == [1, 0]
    assert read.expected.extras.keys() == EXTRAS.keys()
    for name, values in EXTRAS.items():
        assert torch.equal(read.expected.extras[name], values)
    assert adapter.dump_json(read) == adapter.dump_json(test)


def test_outputs_that_the_detector_lacks_are_left_out() -> None:
    kept = fitted(self_test(torch.tensor([1, 0])), (), {"cell": SHAPES["cell"]}).expected
    assert kept.labels is None
    assert kept.extras.keys() == {"cell"}
    with pytest.raises(PydanticCustomError, match=r"tolerance\.cpu\.extras\.age|expected\.extras\.age"):
        fitted(self_test(), (), {"age": SHAPES["cell"]})
