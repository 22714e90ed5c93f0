"""The command `loss` gives the value and gradient of Python. `boxes_json_test.cpp` has all forms of boxes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from cpp_runtime.running import Completed, Run, SaveStandIn
from torch import Tensor

from lensbox.runtime.loading import load_artifact

PREDICTIONS = [[10, 10, 30.5, 31], [40, 5.25, 60, 25], [0, 0, 8, 8], [3, 4, 9, 9]]
TARGETS = [[12, 9, 33, 30], [42, 8, 58, 30], [20, 20, 28, 30], [0, 0, 0, 0]]
BATCHED_PREDICTIONS = [PREDICTIONS[:2], PREDICTIONS[2:]]
BATCHED_TARGETS = [TARGETS[:2], TARGETS[2:]]
DETECT_OUTPUT = {"images": [{"file": "f", "detections": [{"box": box, "score": 0.5} for box in PREDICTIONS]}]}
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


@pytest.mark.parametrize(
    ("predictions", "targets"),
    [
        (PREDICTIONS, TARGETS),
        (BATCHED_PREDICTIONS, BATCHED_TARGETS),
        (PREDICTIONS, {"boxes": TARGETS}),
        (DETECT_OUTPUT, TARGETS),
    ],
)
def test_same_loss_as_python_in_every_form(
    evaluate: Evaluate, artifact: Path, predictions: Any, targets: Any
) -> None:
    result = evaluate(predictions, targets)
    assert result.code == 0, result.stderr
    expected, _ = python_loss(artifact, PREDICTIONS, TARGETS)
    assert result.json() == {"loss": pytest.approx(expected, abs=1e-12), "slots": 3}


@pytest.mark.parametrize("boxes", [[], [[], []], [[0, 0, 0, 0]]])
def test_no_slots_have_neither_loss_nor_gradient(evaluate: Evaluate, boxes: Any) -> None:
    document = evaluate(boxes, boxes, "--gradient", "-").json()
    assert document == {"loss": 0.0, "slots": 0, "gradient": boxes}


# By name: a case's value would become part of its test's name, and that of every child process's environment.
BAD_BOXES: dict[str, tuple[Any, Any, list[str]]] = {
    "no JSON": (b"[[1, 2, 3, NaN]]", [], ["predictions", "not JSON"]),
    "nested too deeply": (b"[" * 100_000 + b"]" * 100_000, [], ["predictions", "nested too deeply"]),
    "a string": ([[1, 2, 3, "4"]], [], ["predictions[0][3]", "number", '"4"']),
    "targets": ([[0, 0, 1, 1]], [[0, 0, None, 1]], ["targets[0][2]"]),
    "another length": ([[1, 2, 3, 4]] * 2, [[0, 0, 1, 1]], ["same shape", "[2, 4]", "[1, 4]"]),
    "another depth": ([[[1, 2, 3, 4]]], [[0, 0, 1, 1]], ["same shape", "[1, 1, 4]", "[1, 4]"]),
}


@pytest.mark.parametrize("name", BAD_BOXES)
def test_bad_boxes(evaluate: Evaluate, name: str) -> None:
    predictions, targets, parts = BAD_BOXES[name]
    result = evaluate(predictions, targets)
    assert (result.code, result.stdout) == (4, "")
    for part in parts:
        assert part in result.stderr


@pytest.mark.parametrize("name", ["absent.json", "."])
def test_a_file_that_cannot_be_read(run: Run, artifact: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    result = run("loss", "--artifact", artifact, "--predictions", path, "--targets", "-", stdin="[]")
    assert (result.code, result.stdout) == (4, "")
    assert f"predictions: cannot read the file {path}" in result.stderr


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize(
    ("predictions", "targets"), [(PREDICTIONS, TARGETS), (BATCHED_PREDICTIONS, BATCHED_TARGETS)]
)
def test_the_gradient_is_that_of_python(
    evaluate: Evaluate, artifact: Path, tmp_path: Path, device: str, predictions: Any, targets: Any
) -> None:
    plain = evaluate(predictions, targets, "--device", device).json()
    file = tmp_path / "g.json"
    result = evaluate(predictions, targets, "--device", device, "--gradient", file)
    assert result.code == 0, result.stderr
    assert result.json() == plain
    gradient = torch.tensor(json.loads(file.read_text()), dtype=torch.float64)
    loss, expected = python_loss(artifact, predictions, targets)
    assert plain["loss"] == pytest.approx(loss, abs=1e-9)
    assert expected.abs().max() > 0.01
    torch.testing.assert_close(gradient, expected, atol=1e-12 if device == "cpu" else 1e-9, rtol=0)
    on_stdout = evaluate(predictions, targets, "--device", device, "--gradient", "-")
    assert on_stdout.json() == {**plain, "gradient": gradient.tolist()}


class SquaredDistance(torch.nn.Module):
    """A loss whose gradient is known: twice the difference."""

    @torch.jit.export
    def loss(self, predictions: Tensor, targets: Tensor) -> Tensor:
        return (predictions - targets).square().sum()

    def forward(self, image: Tensor) -> Tensor:
        return image


class WithoutGradient(SquaredDistance):
    """Counts, which nothing can be derived from."""

    @torch.jit.export
    def loss(self, predictions: Tensor, targets: Tensor) -> Tensor:
        return (predictions > targets).sum().double()


class ForEachBox(SquaredDistance):
    """Forgets to take the mean."""

    @torch.jit.export
    def loss(self, predictions: Tensor, targets: Tensor) -> Tensor:
        return (predictions - targets).square().sum(-1)


def test_a_gradient_known_by_hand(evaluate: Evaluate, save_stand_in: SaveStandIn) -> None:
    file = save_stand_in(SquaredDistance())
    result = evaluate([[1, 2, 3, 4]], [[0, 4, 3, 2]], "--gradient", "-", file=file)
    assert result.json() == {"loss": 9.0, "slots": 1, "gradient": [[2.0, -4.0, 0.0, 4.0]]}


@pytest.mark.parametrize(
    ("module", "options", "message"),
    [
        (WithoutGradient(), ["--gradient", "-"], "method loss must return one number that has a gradient"),
        (ForEachBox(), [], "method loss must return one number, got Double [4]"),
        (ForEachBox(), ["--gradient", "-"], "method loss must return one number, got Double [4]"),
    ],
)
def test_a_loss_that_is_none(
    evaluate: Evaluate, save_stand_in: SaveStandIn, module: torch.nn.Module, options: list[str], message: str
) -> None:
    result = evaluate(PREDICTIONS, TARGETS, *options, file=save_stand_in(module))
    assert (result.code, result.stdout) == (3, "")
    assert message in result.stderr


def test_a_gradient_that_cannot_be_written(evaluate: Evaluate, tmp_path: Path) -> None:
    file = tmp_path / "absent" / "g.json"
    result = evaluate(PREDICTIONS, TARGETS, "--gradient", file)
    assert (result.code, result.stdout) == (4, "")
    assert f"gradient: cannot write the file {file}" in result.stderr


@pytest.mark.parametrize(("option", "name"), [("--predictions", "p.json"), ("--targets", "t.json")])
def test_the_gradient_is_not_written_over_the_boxes(
    evaluate: Evaluate, tmp_path: Path, option: str, name: str
) -> None:
    link = tmp_path / "link.json"
    link.symlink_to(tmp_path / name)
    result = evaluate(PREDICTIONS, TARGETS, "--gradient", link)
    assert (result.code, result.stdout) == (2, "")
    assert f"--gradient would be written over the file of {option}, got '{link}'" in result.stderr
    assert json.loads((tmp_path / name).read_text()) == (PREDICTIONS if name == "p.json" else TARGETS)
