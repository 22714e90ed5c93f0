"""The command `loss` gives the value and gradient of Python. `boxes_json_test.cpp` has all forms of boxes."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from runner_answers import answer, refusal

from lensbox.runtime.loading import load_artifact

PREDICTIONS = [[10, 10, 30.5, 31], [40, 5.25, 60, 25], [0, 0, 8, 8], [3, 4, 9, 9]]
TARGETS = [[12, 9, 33, 30], [42, 8, 58, 30], [20, 20, 28, 30], [0, 0, 0, 0]]


@pytest.fixture
def arguments(artifact: Path, tmp_path: Path) -> list[object]:
    files = []
    for name, boxes in (("predictions", PREDICTIONS), ("targets", TARGETS)):
        (tmp_path / name).write_text(json.dumps(boxes))
        files += [f"--{name}", tmp_path / name]
    return ["loss", "--artifact", artifact, *files]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("shape", [(4, 4), (2, 2, 4)])
def test_loss_and_gradient_equal_python(
    arguments: list[object], artifact: Path, tmp_path: Path, device: str, shape: tuple[int, ...]
) -> None:
    boxes = torch.tensor(PREDICTIONS, dtype=torch.float64).reshape(shape).requires_grad_()
    targets = torch.tensor(TARGETS, dtype=torch.float64).reshape(shape)
    for name, values in (("predictions", boxes), ("targets", targets)):
        (tmp_path / name).write_text(json.dumps(values.tolist()))
    file = tmp_path / "g.json"
    plain = answer(*arguments, "--device", device, "--gradient", file)
    gradient = torch.tensor(json.loads(file.read_text()), dtype=torch.float64)
    loss = load_artifact(artifact).module.loss(boxes, targets)
    (expected,) = torch.autograd.grad(loss, boxes)
    assert plain == {"loss": pytest.approx(loss.item(), abs=1e-9), "slots": 3}
    assert expected.abs().max() > 0.01
    torch.testing.assert_close(gradient, expected, atol=1e-12 if device == "cpu" else 1e-9, rtol=0)
    on_stdout = answer(*arguments, "--device", device, "--gradient", "-")
    assert on_stdout == {**plain, "gradient": gradient.tolist()}


@pytest.mark.parametrize("boxes", [[], [[], []], [[0, 0, 0, 0]]])
def test_loss_and_gradient_are_zero_without_slots(arguments: list[Any], tmp_path: Path, boxes: Any) -> None:
    for name in ("predictions", "targets"):
        (tmp_path / name).write_text(json.dumps(boxes))
    assert answer(*arguments, "--gradient", "-") == {"loss": 0.0, "slots": 0, "gradient": boxes}


def test_names_files_that_cannot_be_read_or_written(arguments: list[object], tmp_path: Path) -> None:
    absent, link = tmp_path / "absent" / "g.json", tmp_path / "link"
    assert f"gradient: cannot write the file {absent}" in refusal(4, *arguments, "--gradient", absent)
    for name in ("predictions", "targets"):
        link.symlink_to(tmp_path / name)
        before = (tmp_path / name).read_text()
        message = refusal(2, *arguments, "--gradient", link)
        assert f"--gradient would be written over the file of --{name}" in message
        assert (tmp_path / name).read_text() == before
        link.unlink()
    (tmp_path / "predictions").unlink()
    assert "predictions: cannot read the file" in refusal(4, *arguments)
