"""A self-test gives a detector the outputs that it has. `test_metadata.py` has its JSON."""

import pytest
import torch
from pydantic_core import PydanticCustomError

from lensbox.runtime.file.metadata import Extra
from lensbox.runtime.file.self_test import Expected, ExpectedLoss, SelfTest, Tolerance, Tolerances, fitted

BOXES = torch.tensor([[0.0, 1, 2, 3.5], [4, 5, 6, 7]])
EXTRAS = {"cell": torch.tensor([1.0, 2]).double(), "eyes": torch.arange(8.0).view(2, 2, 2).double()}


def test_outputs_that_the_detector_lacks_are_left_out() -> None:
    image, loss = torch.zeros(3, 2, 2, dtype=torch.uint8), ExpectedLoss(BOXES, BOXES, 0.125)
    expected = Expected(BOXES, torch.tensor([0.75, 0.5]), torch.tensor([1, 0]), EXTRAS)
    limits = Tolerance(1, 1, 1, {"cell": 0.5, "eyes": 2})
    test = SelfTest(image, 0.5, 0.25, expected, loss, Tolerances(limits, limits))
    kept = fitted(test, (), {"cell": Extra((), "values")}).expected
    assert kept.labels is None
    assert kept.extras.keys() == {"cell"}
    with pytest.raises(PydanticCustomError, match=r"tolerance\.cpu\.extras\.age|expected\.extras\.age"):
        fitted(test, (), {"age": Extra((), "values")})
