"""The command `loss` gives the value and gradient of Python. `boxes_json_test.cpp` has all forms of boxes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from cpp_runtime.running import Completed, Run
from torch import Tensor

from lensbox.runtime.loading import load_artifact

PREDICTIONS = [[10, 10, 30.5, 31], [40, 5.25, 60, 25], [0, 0, 8, 8], [3, 4, 9, 9]]
TARGETS = [[12, 9, 33, 30], [42, 8, 58, 30], [20, 20, 28, 30], [0, 0, 0, 0]]
BATCHED_PREDICTIONS = [PREDICTIONS[:2], PREDICTIONS[2:]]
BATCHED_TARGETS = [TARGETS[:2], TARGETS[2:]]
Evaluate = Callable[..., Completed]


@pytest.fixture
def evaluate(run: Run, artifact: Path, tmp_path: Path) -> Evaluate:
    """Runs `loss` on two values, each written to a file as JSON, or as it is if it is bytes."""

    def run_loss(predictions: Any, targets: Any, *options: str | Path, file: Path = artifact) -> Completed:
        for name, value in (("p", predictions), ("t", targets)):
            content = value if isinstance(value, bytes) else json.dumps(value).encode()
            (tmp_path / f"{name}.json").write_bytes(content)
        files = ["--predictions", tmp_path / "p.json", "--targets", tmp_path / "t.json"]
        return run("loss", "--artifact", file, *files, *options)

    return run_loss


def python_loss(artifact: Path, predictions: Any, targets: Any) -> tuple[float, Tensor]:
    """Return the loss in Python and its gradient."""
    boxes = torch.tensor(predictions, dtype=torch.float64, requires_grad=True)
    loss = load_artifact(artifact).module.loss(boxes, torch.tensor(targets, dtype=torch.float64))
    (gradient,) = torch.autograd.grad(loss, boxes)
    return loss.item(), gradient


@pytest.mark.parametrize("boxes", [[], [[], []], [[0, 0, 0, 0]]])
def test_loss_and_gradient_are_zero_without_slots(evaluate: Evaluate, boxes: Any) -> None:
    document = evaluate(boxes, boxes, "--gradient", "-").json()
    assert document == {"loss": 0.0, "slots": 0, "gradient": boxes}


@pytest.mark.parametrize(
    ("predictions", "targets", "parts"),
    [
        (b"[[1, 2, 3, NaN]]", [], ["predictions", "must hold boxes as JSON"]),
        ([[0, 0, 1, 1]], [[0, 0, None, 1]], ["targets[0][2]"]),
        ([[[1, 2, 3, 4]]], [[0, 0, 1, 1]], ["same shape", "[1, 1, 4]", "[1, 4]"]),
    ],
)
def test_rejects_bad_boxes(evaluate: Evaluate, predictions: Any, targets: Any, parts: list[str]) -> None:
    result = evaluate(predictions, targets)
    assert (result.code, result.stdout) == (4, "")
    for part in parts:
        assert part in result.stderr


@pytest.mark.parametrize("name", ["absent.json", "."])
def test_names_an_unreadable_file(run: Run, artifact: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    result = run("loss", "--artifact", artifact, "--predictions", path, "--targets", "-", stdin="[]")
    assert (result.code, result.stdout) == (4, "")
    assert f"predictions: cannot read the file {path}" in result.stderr


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize(
    ("predictions", "targets"), [(PREDICTIONS, TARGETS), (BATCHED_PREDICTIONS, BATCHED_TARGETS)]
)
def test_loss_and_gradient_equal_python(
    evaluate: Evaluate, artifact: Path, tmp_path: Path, device: str, predictions: Any, targets: Any
) -> None:
    plain = evaluate(predictions, targets, "--device", device).json()
    file = tmp_path / "g.json"
    result = evaluate(predictions, targets, "--device", device, "--gradient", file)
    assert result.code == 0, result.stderr
    assert result.json() == plain
    assert plain["slots"] == 3
    gradient = torch.tensor(json.loads(file.read_text()), dtype=torch.float64)
    loss, expected = python_loss(artifact, predictions, targets)
    assert plain["loss"] == pytest.approx(loss, abs=1e-9)
    assert expected.abs().max() > 0.01
    torch.testing.assert_close(gradient, expected, atol=1e-12 if device == "cpu" else 1e-9, rtol=0)
    on_stdout = evaluate(predictions, targets, "--device", device, "--gradient", "-")
    assert on_stdout.json() == {**plain, "gradient": gradient.tolist()}


def test_names_an_unwritable_gradient_file(evaluate: Evaluate, tmp_path: Path) -> None:
    file = tmp_path / "absent" / "g.json"
    result = evaluate(PREDICTIONS, TARGETS, "--gradient", file)
    assert (result.code, result.stdout) == (4, "")
    assert f"gradient: cannot write the file {file}" in result.stderr


@pytest.mark.parametrize(("option", "name"), [("--predictions", "p.json"), ("--targets", "t.json")])
def test_refuses_to_overwrite_the_boxes(evaluate: Evaluate, tmp_path: Path, option: str, name: str) -> None:
    link = tmp_path / "link.json"
    link.symlink_to(tmp_path / name)
    result = evaluate(PREDICTIONS, TARGETS, "--gradient", link)
    assert (result.code, result.stdout) == (2, "")
    assert f"--gradient would be written over the file of {option}, got '{link}'" in result.stderr
    assert json.loads((tmp_path / name).read_text()) == (PREDICTIONS if name == "p.json" else TARGETS)
