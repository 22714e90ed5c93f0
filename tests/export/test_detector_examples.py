"""The wrapped detectors of other libraries find what these libraries find: as files, in C++ and as a service.

Each test needs the packages of the extra `detectors`, with a torchvision that fits the installed torch.
"""

import itertools
import sys
from pathlib import Path

import numpy
import pytest
import torch
from built_runner import built_runner, runner_onnxruntime
from example_detectors import Example, make_example, own_answers, spots
from serve_process import running_service
from torch import Tensor
from torchvision_there import require_torchvision

from lensbox.client import Client
from lensbox.common.errors import ArtifactError
from lensbox.export.pipeline import save_artifact
from lensbox.export.verify.runner import RunnerTrial
from lensbox.export.verify.tolerances import tolerance_of
from lensbox.model.protocol_check import slots_of
from lensbox.runtime import load_artifact
from lensbox.runtime.detection_sets import Difference, Found

pytestmark = [
    pytest.mark.exhaustive,
    # of these libraries, and of torch about them
    pytest.mark.filterwarnings("ignore"),
]
IOU = 0.5
CPU = tolerance_of("float32", "cpu", 0)
ANY_BATCH = ["fcos", "retinanet", "ssdlite", "yolo11", "yolos"]
FIXED_BATCH = ["rtdetr", "dfine"]  # len() of a tensor in their code makes a constant of the batch


def needed(name: str) -> str | None:
    """Return the package, beside torchvision, that a detector comes from."""
    if name in ("rtdetr", "dfine", "yolos"):
        return "transformers"
    return "ultralytics" if name.startswith("yolo") else None


def example_of(name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Example, Tensor, list[Found]]:
    """Return an example, canvases uint8 [3, 3, h, w] and what the library finds in each of them."""
    require_torchvision()
    if package := needed(name):
        pytest.importorskip(package)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    example = make_example(name)
    specification = example.detector.specification
    canvases = spots(specification.height, specification.width)
    answer = example.detector.detect(canvases, example.score, IOU)
    assert isinstance(answer, dict)
    expected = own_answers(example, canvases, IOU, slots_of([answer]) or 0)
    assert sum(len(found.scores) for found in expected) >= 3
    return example, canvases, expected


def assert_alike(expected: list[Found], actual: list[Found], score: float) -> None:
    difference = Difference()
    for index, (wanted, found) in enumerate(zip(expected, actual, strict=True)):
        difference.add(wanted, found, (score, IOU), CPU.limits(wanted), f"canvas {index}")
    assert not difference.unexplained
    assert difference.exchanged <= 0.05 * difference.expected


def found_by(path: Path, canvases: Tensor, score: float, slots: int) -> list[Found]:
    """Return what a file finds in Python."""
    artifact = load_artifact(path)
    assert artifact.self_test().passed
    return [
        Found(one.boxes, one.scores, one.labels, 0 < len(one.scores) == slots, {})
        for one in artifact.detect_images(list(canvases), score, IOU)
        if one.labels is not None
    ]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *itertools.product(ANY_BATCH, ["torchscript", "onnx", "aoti"]),
        *itertools.product(FIXED_BATCH, ["torchscript"]),
        ("rtdetr", "aoti"),
    ],
)
def test_files_find_what_the_library_finds(
    name: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example, canvases, expected = example_of(name, monkeypatch)
    path = tmp_path / f"detector.{kind}"
    batches = (1,) if name in FIXED_BATCH and kind != "torchscript" else ()
    metadata = save_artifact(example.detector, path, kind=kind, batches=batches)
    slots = int(metadata.output["boxes"]["shape"][1])
    assert_alike(expected, found_by(path, canvases, example.score, slots), example.score)
    if kind == "onnx" and runner_onnxruntime() is None:
        return
    suffix = {"torchscript": ".pt", "onnx": ".onnx", "aoti": ".pt2"}[kind]
    with RunnerTrial(built_runner(), path.read_bytes(), f"detector{suffix}", "cpu", canvases) as trial:
        assert_alike(expected, trial.detect((example.score, IOU), 2, metadata.classes, slots), example.score)


@pytest.mark.parametrize(
    ("name", "kind", "batches", "message"),
    [
        ("rtdetr", "onnx", (), "batches of one size: --batch 1"),
        ("rtdetr", "onnx", (1,), "fails its self-test"),  # onnxruntime's scores stray
        ("dfine", "onnx", (1,), "ONNX has no translation"),
        ("dfine", "aoti", (1,), "AOTInductor cannot compile"),
    ],
)
def test_says_what_cannot_be_exported(
    name: str,
    kind: str,
    batches: tuple[int, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    example, _, _ = example_of(name, monkeypatch)
    with pytest.raises(ArtifactError, match=message):
        save_artifact(example.detector, tmp_path / "detector", kind=kind, batches=batches)


def test_the_service_finds_what_ultralytics_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example, canvases, expected = example_of("yolo11", monkeypatch)
    path = tmp_path / "detector.pt"
    classes = list(save_artifact(example.detector, path).classes)
    actual = []
    with running_service(path) as url, Client(url) as client:
        for canvas in canvases:
            pixels = numpy.ascontiguousarray(canvas.permute(1, 2, 0).numpy())
            found = client.detect(pixels, score_threshold=example.score, iou_threshold=IOU).detections
            boxes = torch.tensor([one.box for one in found]).reshape(-1, 4)
            labels = torch.tensor([classes.index(one.label or "") for one in found], dtype=torch.int64)
            actual.append(Found(boxes, torch.tensor([one.score for one in found]), labels, False, {}))
    assert_alike(expected, actual, example.score)
