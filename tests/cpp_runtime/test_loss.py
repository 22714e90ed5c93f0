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


def written(folder: Path, predictions: Any = PREDICTIONS, targets: Any = TARGETS) -> list[object]:
    """Write boxes to files; return the options that name the files."""
    (folder / "predictions").write_text(json.dumps(predictions))
    (folder / "targets").write_text(json.dumps(targets))
    return ["--predictions", folder / "predictions", "--targets", folder / "targets"]


@pytest.mark.parametrize(
    ("artifact", "shape", "device"),
    [
        ("random_path", (4, 4), "cpu"),
        ("random_path", (2, 2, 4), "cpu"),
        ("package_path", (4, 4), "cpu"),
        pytest.param("onnx_path", (4, 4), "cpu", marks=pytest.mark.onnx_runner),
        pytest.param("random_path", (2, 2, 4), "cuda", marks=pytest.mark.gpu),
    ],
)
def test_loss_and_gradient_equal_python(
    artifact: str, shape: tuple[int, ...], device: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path: Path = request.getfixturevalue(artifact)
    boxes = torch.tensor(PREDICTIONS, dtype=torch.float64).reshape(shape).requires_grad_()
    targets = torch.tensor(TARGETS, dtype=torch.float64).reshape(shape)
    asked = [
        "loss",
        "--artifact",
        path,
        "--device",
        device,
        *written(tmp_path, boxes.tolist(), targets.tolist()),
    ]
    plain = answer(*asked, "--gradient", tmp_path / "g.json")
    gradient = torch.tensor(json.loads((tmp_path / "g.json").read_text()), dtype=torch.float64)
    loss = load_artifact(path).module.loss(boxes, targets)
    (expected,) = torch.autograd.grad(loss, boxes)
    assert plain == {"loss": pytest.approx(loss.item(), abs=1e-9), "slots": 3}
    assert expected.abs().max() > 0.01
    torch.testing.assert_close(gradient, expected, atol=1e-12 if device == "cpu" else 1e-9, rtol=0)
    assert answer(*asked, "--gradient", "-") == {**plain, "gradient": gradient.tolist()}


@pytest.mark.parametrize("boxes", [[], [[], []], [[0, 0, 0, 0]]])
def test_loss_and_gradient_are_zero_without_slots(boxes: Any, random_path: Path, tmp_path: Path) -> None:
    asked = ["loss", "--artifact", random_path, *written(tmp_path, boxes, boxes)]
    assert answer(*asked, "--gradient", "-") == {"loss": 0.0, "slots": 0, "gradient": boxes}


def test_names_files_that_cannot_be_read_or_written(random_path: Path, tmp_path: Path) -> None:
    asked = ["loss", "--artifact", random_path, *written(tmp_path)]
    absent, link, targets = tmp_path / "absent" / "g.json", tmp_path / "link", tmp_path / "targets"
    assert f"gradient: cannot write the file {absent}" in refusal(4, *asked, "--gradient", absent)
    link.symlink_to(targets)
    message = refusal(2, *asked, "--gradient", link)
    assert "--gradient would be written over the file of --targets" in message
    assert json.loads(targets.read_text()) == TARGETS
    (tmp_path / "predictions").unlink()
    assert "predictions: cannot read the file" in refusal(4, *asked)
