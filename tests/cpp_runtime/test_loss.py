import json
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


@pytest.fixture
def evaluate(run: Run, artifact: Path, tmp_path: Path) -> Any:
    """Runs `loss` on two values, each written to a file as JSON, or as it is if it is bytes."""

    def run_loss(predictions: Any, targets: Any) -> Completed:
        for name, value in (("predictions", predictions), ("targets", targets)):
            content = value if isinstance(value, bytes) else json.dumps(value).encode()
            (tmp_path / f"{name}.json").write_bytes(content)
        files = ["--predictions", tmp_path / "predictions.json", "--targets", tmp_path / "targets.json"]
        return run("loss", "--artifact", artifact, *files)

    return run_loss


def python_loss(artifact: Path) -> float:
    double = torch.float64
    return load_artifact(artifact).loss(
        torch.tensor(PREDICTIONS, dtype=double), torch.tensor(TARGETS, dtype=double)
    )


def detect_output(*images: Any) -> dict[str, Any]:
    return {
        "images": [
            {"file": "f", "detections": [{"box": box, "score": 0.5} for box in boxes]} for boxes in images
        ]
    }


@pytest.mark.parametrize(
    ("predictions", "targets"),
    [
        (PREDICTIONS, TARGETS),
        (BATCHED_PREDICTIONS, BATCHED_TARGETS),
        ({"boxes": PREDICTIONS}, TARGETS),
        ({"boxes": BATCHED_PREDICTIONS}, {"boxes": BATCHED_TARGETS}),
        (detect_output(PREDICTIONS), TARGETS),
        (detect_output(*BATCHED_PREDICTIONS), BATCHED_TARGETS),
        (PREDICTIONS, detect_output(TARGETS)),
    ],
)
def test_same_loss_as_python_in_every_form(
    evaluate: Any, artifact: Path, predictions: Any, targets: Any
) -> None:
    result = evaluate(predictions, targets)
    assert result.code == 0, result.stderr
    assert result.json() == {"loss": pytest.approx(python_loss(artifact), abs=1e-12), "slots": 3}


def test_a_hand_worked_value(evaluate: Any) -> None:
    # Two unit squares that touch at a corner: no intersection, union 2, hull 4, GIoU = 0 - (4 - 2) / 4.
    assert evaluate([[0, 0, 1, 1]], [[1, 1, 2, 2]]).json() == {
        "loss": pytest.approx(1.5, abs=1e-6),
        "slots": 1,
    }


@pytest.mark.parametrize("boxes", [[], [[], []], [[0, 0, 0, 0]], detect_output([])])
def test_no_slots_no_loss(evaluate: Any, boxes: Any) -> None:
    assert evaluate(boxes, boxes).json() == {"loss": 0.0, "slots": 0}


def test_images_with_fewer_detections_are_filled_up(evaluate: Any) -> None:
    found = detect_output(PREDICTIONS[:1], PREDICTIONS[:2])
    labels = [[TARGETS[0], [0, 0, 0, 0]], TARGETS[:2]]
    padded = [[PREDICTIONS[0], [0, 0, 0, 0]], PREDICTIONS[:2]]
    assert evaluate(found, labels).json() == evaluate(padded, labels).json()


# By name: a case's value would become part of its test's name, and that of every child process's environment.
BAD_BOXES: dict[str, tuple[Any, list[str]]] = {
    "an empty file": (b"", ["predictions", "not JSON"]),
    "an open bracket": (b"[[1, 2, 3, 4]", ["predictions", "not JSON"]),
    "NaN": (b"[[1, 2, 3, NaN]]", ["predictions", "not JSON"]),
    "beyond float64": (b"[[1, 2, 3, 1e999]]", ["predictions", "not JSON"]),
    "nested too deeply": (b"[" * 100_000 + b"]" * 100_000, ["predictions", "nested too deeply"]),
    "a number": (7, ["predictions", "nested arrays", "7"]),
    "one box": ([1, 2, 3, 4], ["predictions[0]", "four numbers", "got 1"]),
    "three numbers": ([[1, 2, 3]], ["predictions[0]", "four numbers", "[1,2,3]"]),
    "a string": ([[1, 2, 3, "4"]], ["predictions[0][3]", "number", '"4"']),
    "a boolean": ([[1, 2, 3, True]], ["predictions[0][3]", "number", "true"]),
    "uneven images": ([[[1, 2, 3, 4]], []], ["predictions[1]", "same number of boxes", "[]"]),
    "no boxes": ({"box": []}, ["predictions", '"boxes"']),
    "an image that failed": (
        {"images": [{"file": "a", "error": "no such file"}]},
        ["predictions.images[0]", "no such file"],
    ),
    "another length": ([[1, 2, 3, 4], [1, 2, 3, 4]], ["same shape", "[2, 4]", "[1, 4]"]),
    "another depth": ([[[1, 2, 3, 4]]], ["same shape", "[1, 1, 4]", "[1, 4]"]),
}


@pytest.mark.parametrize(("predictions", "parts"), BAD_BOXES.values(), ids=BAD_BOXES.keys())
def test_bad_boxes(evaluate: Any, predictions: Any, parts: list[str]) -> None:
    result = evaluate(predictions, [[0, 0, 1, 1]])
    assert (result.code, result.stdout) == (4, "")
    for part in parts:
        assert part in result.stderr


def test_targets_are_named(evaluate: Any) -> None:
    result = evaluate([[0, 0, 1, 1]], [[0, 0, None, 1]])
    assert (result.code, result.stdout) == (4, "")
    assert "targets[0][2]" in result.stderr


@pytest.mark.parametrize("name", ["absent.json", "."])
def test_a_file_that_cannot_be_read(run: Run, artifact: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    result = run("loss", "--artifact", artifact, "--predictions", path, "--targets", "-", stdin="[]")
    assert (result.code, result.stdout) == (4, "")
    assert f"predictions: cannot read the file {path}" in result.stderr


@pytest.mark.gpu
def test_same_loss_on_the_gpu(run: Run, artifact: Path, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(json.dumps(PREDICTIONS))
    (tmp_path / "t.json").write_text(json.dumps(TARGETS))
    files = ["--predictions", tmp_path / "p.json", "--targets", tmp_path / "t.json"]
    result = run("loss", "--artifact", artifact, "--device", "cuda", *files)
    assert result.json() == {"loss": pytest.approx(python_loss(artifact), abs=1e-9), "slots": 3}


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


def loss_arguments(folder: Path, predictions: Any, targets: Any) -> list[str | Path]:
    (folder / "p.json").write_text(json.dumps(predictions))
    (folder / "t.json").write_text(json.dumps(targets))
    return ["--predictions", folder / "p.json", "--targets", folder / "t.json"]


def python_gradient(artifact: Path, predictions: Any, targets: Any) -> Tensor:
    boxes = torch.tensor(predictions, dtype=torch.float64, requires_grad=True)
    loss = load_artifact(artifact).module.loss(boxes, torch.tensor(targets, dtype=torch.float64))
    (gradient,) = torch.autograd.grad(loss, boxes)
    return gradient


@pytest.mark.parametrize(
    ("predictions", "targets"), [(PREDICTIONS, TARGETS), (BATCHED_PREDICTIONS, BATCHED_TARGETS)]
)
def test_the_gradient_is_that_of_python(
    run: Run, artifact: Path, tmp_path: Path, predictions: Any, targets: Any
) -> None:
    files = loss_arguments(tmp_path, predictions, targets)
    plain = run("loss", "--artifact", artifact, *files)
    result = run("loss", "--artifact", artifact, *files, "--gradient", tmp_path / "g.json")
    assert result.code == 0, result.stderr
    assert result.json() == plain.json()
    gradient = torch.tensor(json.loads((tmp_path / "g.json").read_text()), dtype=torch.float64)
    expected = python_gradient(artifact, predictions, targets)
    assert expected.abs().max() > 0.01
    torch.testing.assert_close(gradient, expected, atol=1e-12, rtol=0)

    on_stdout = run("loss", "--artifact", artifact, *files, "--gradient", "-").json()
    assert on_stdout == {**plain.json(), "gradient": gradient.tolist()}


@pytest.mark.exhaustive
def test_the_gradient_is_the_slope_of_the_loss(run: Run, artifact: Path, tmp_path: Path) -> None:
    def evaluate_at(predictions: Tensor, *options: str) -> Any:
        files = loss_arguments(tmp_path, predictions.tolist(), TARGETS)
        return run("loss", "--artifact", artifact, *files, *options).json()

    boxes = torch.tensor(PREDICTIONS, dtype=torch.float64)
    gradient = torch.tensor(evaluate_at(boxes, "--gradient", "-")["gradient"])
    step = 1e-4
    for box, edge in ((0, 0), (0, 3), (1, 1), (2, 2)):
        shift = torch.zeros_like(boxes)
        shift[box, edge] = step
        slope = (evaluate_at(boxes + shift)["loss"] - evaluate_at(boxes - shift)["loss"]) / (2 * step)
        assert gradient[box, edge].item() == pytest.approx(slope, abs=1e-6)
    assert gradient[3].tolist() == [0, 0, 0, 0]  # padding


def test_a_gradient_known_by_hand(run: Run, save_stand_in: SaveStandIn, tmp_path: Path) -> None:
    files = loss_arguments(tmp_path, [[1, 2, 3, 4]], [[0, 4, 3, 2]])
    result = run("loss", "--artifact", save_stand_in(SquaredDistance()), *files, "--gradient", "-")
    assert result.json() == {"loss": 9.0, "slots": 1, "gradient": [[2.0, -4.0, 0.0, 4.0]]}


def test_no_slots_have_no_gradient(run: Run, artifact: Path, tmp_path: Path) -> None:
    empty: tuple[Any, ...] = ([], [[], []], [[0, 0, 0, 0]])
    for boxes in empty:
        files = loss_arguments(tmp_path, boxes, boxes)
        document = run("loss", "--artifact", artifact, *files, "--gradient", "-").json()
        assert document == {"loss": 0.0, "slots": 0, "gradient": boxes}


def test_a_loss_without_a_gradient(run: Run, save_stand_in: SaveStandIn, tmp_path: Path) -> None:
    artifact = save_stand_in(WithoutGradient())
    files = loss_arguments(tmp_path, PREDICTIONS, TARGETS)
    assert run("loss", "--artifact", artifact, *files).code == 0
    result = run("loss", "--artifact", artifact, *files, "--gradient", "-")
    assert (result.code, result.stdout) == (3, "")
    assert "method loss must return one number that has a gradient" in result.stderr


def test_a_gradient_that_cannot_be_written(run: Run, artifact: Path, tmp_path: Path) -> None:
    files = loss_arguments(tmp_path, PREDICTIONS, TARGETS)
    result = run("loss", "--artifact", artifact, *files, "--gradient", tmp_path / "absent" / "g.json")
    assert (result.code, result.stdout) == (4, "")
    assert f"gradient: cannot write the file {tmp_path / 'absent' / 'g.json'}" in result.stderr


@pytest.mark.gpu
def test_same_gradient_on_the_gpu(run: Run, artifact: Path, tmp_path: Path) -> None:
    files = loss_arguments(tmp_path, BATCHED_PREDICTIONS, BATCHED_TARGETS)
    result = run("loss", "--artifact", artifact, "--device", "cuda", *files, "--gradient", "-")
    gradient = torch.tensor(result.json()["gradient"], dtype=torch.float64)
    expected = python_gradient(artifact, BATCHED_PREDICTIONS, BATCHED_TARGETS)
    torch.testing.assert_close(gradient, expected, atol=1e-9, rtol=0)


@pytest.mark.parametrize("options", [[], ["--gradient", "-"]])
def test_a_loss_of_several_numbers(
    run: Run, save_stand_in: SaveStandIn, tmp_path: Path, options: list[str]
) -> None:
    files = loss_arguments(tmp_path, PREDICTIONS, TARGETS)
    result = run("loss", "--artifact", save_stand_in(ForEachBox()), *files, *options)
    assert (result.code, result.stdout) == (3, "")
    assert f"method loss must return one number, got Double [{len(PREDICTIONS)}]" in result.stderr


@pytest.mark.parametrize("option", ["--predictions", "--targets"])
def test_the_gradient_is_not_written_over_the_boxes(
    run: Run, artifact: Path, tmp_path: Path, option: str
) -> None:
    files = loss_arguments(tmp_path, PREDICTIONS, TARGETS)
    boxes = Path(files[files.index(option) + 1])
    before = boxes.read_bytes()
    link = tmp_path / "link.json"
    link.symlink_to(boxes)
    result = run("loss", "--artifact", artifact, *files, "--gradient", link)
    assert (result.code, result.stdout) == (2, "")
    assert f"--gradient would be written over the file of {option}, got '{link}'" in result.stderr
    assert boxes.read_bytes() == before
