"""`faults_of`: faults of detectors, with the line to add."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from small_detectors import Brightest, Landmarks, RedAndBlue
from torch import Tensor, nn

from lensbox.model import DetectorSpec, faults_of

Change = Callable[[dict[str, Tensor]], Any]
LABELLED = DetectorSpec(8, 8, classes=("cat", "dog"), points={"tail": (2,)}, values={"weight": ()})


def answer(batch: int) -> dict[str, Tensor]:
    """Return a result of `detect` that follows LABELLED."""
    return {
        "boxes": torch.tensor([[1.0, 2, 3, 4], [0, 0, 0, 0], [0, 0, 0, 0]]).expand(batch, 3, 4),
        "scores": torch.tensor([0.7, 0.6, float("nan")]).expand(batch, 3),
        "counts": torch.tensor([2]).expand(batch),
        "labels": torch.tensor([1, 0, -1]).expand(batch, 3),
        "tail": torch.zeros(batch, 3, 2),
        "weight": torch.zeros(batch, 3),
    }


class Returning(nn.Module):
    """Return a good result, changed by `change`."""

    def __init__(self, change: Change, specification: DetectorSpec = LABELLED) -> None:
        super().__init__()
        self.specification = specification
        self.change = change

    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> Any:
        return self.change(answer(len(images)))


@pytest.mark.parametrize("detector", [Brightest(), RedAndBlue(), Landmarks(), Returning(lambda found: found)])
def test_good_detectors_have_no_faults(detector: nn.Module) -> None:
    detector.train()
    assert faults_of(detector) == []
    assert detector.training


class WithDict(Brightest):
    """A detector whose specification is a dict."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.specification = {"height": 64}  # type: ignore[assignment]


class Unannotated(Brightest):
    def detect(self, images, score_threshold, iou_threshold):  # type: ignore[no-untyped-def]
        return super().detect(images, score_threshold, iou_threshold)


class Failing(Brightest):
    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> Any:
        if score_threshold == 1:
            raise KeyError("anchors")
        return super().detect(images, score_threshold, iou_threshold)


class WithMethods(Brightest):
    def preprocess(self, images: list[Tensor], windows: Tensor | None) -> tuple[Tensor, Tensor]:
        return torch.zeros(len(images), 1, 64, 64), torch.zeros(len(images), 6)

    def restore(self, boxes: Tensor, geometry: Tensor) -> Tensor:
        return boxes[0]

    def loss(self, predictions: Tensor, targets: Tensor) -> Tensor:
        return (predictions - targets).abs().sum(dim=-1)


@pytest.mark.parametrize(
    ("detector", "messages"),
    [
        ("detector", ["a detector must be a torch.nn.Module, got str"]),
        (Brightest, ["a detector must be a torch.nn.Module, got a Brightest (call it)"]),
        (nn.Module(), ["the detector lacks the specification: add", "the detector lacks detect: add"]),
        (WithDict(), ["specification must be a DetectorSpec, got dict"]),
        (Unannotated(), ["detect must take images and two thresholds annotated as float"]),
        (
            Failing(),
            [
                "detect(canvases, 1.0, 0.5), which must find nothing, raised KeyError: 'anchors' "
                f"({__file__}:{Failing.detect.__code__.co_firstlineno + 2})"
            ],
        ),
        (
            WithMethods(),
            [
                "preprocess must return canvases uint8 [2, 1, 64, 64], geometry float32 [2, 6], "
                "got float32 [2, 1, 64, 64], float32 [2, 6]",
                "restore must return values float32 [2, 1, 4], got float32 [1, 4]",
                "loss must return a scalar float32 [], got float32 [1]",
            ],
        ),
    ],
)
def test_names_missing_and_wrong_members(detector: object, messages: list[str]) -> None:
    for fault, message in zip(faults_of(detector), messages, strict=True):
        assert fault.startswith(message)


def without(name: str) -> Change:
    return lambda found: {key: value for key, value in found.items() if key != name}


def with_output(name: str, make: Callable[[Tensor], Any]) -> Change:
    return lambda found: {**found, name: make(found[name])}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda found: tuple(found.values()),
            'detect must return a dict .*, got tuple: .* "weight": weight}',
        ),
        (without("labels"), 'detect must return labels: add "labels": labels to the dict'),
        (with_output("scores", lambda scores: 0.5), "detect must return scores as a tensor, got float"),
        (with_output("scores", Tensor.double), r"scores must be float32, got float64: .*scores\.float\(\)"),
        (with_output("boxes", lambda boxes: boxes[0]), r"boxes .* \[B, K, 4\] with B = 2, got \[3, 4\]"),
        (with_output("counts", lambda counts: counts + 2), r"counts must be 0 to K = 3, got \[4, 4\]"),
        (with_output("scores", lambda scores: scores * 9), r"scores must be 0 to 1, got 5\.4 to 6\.3: add"),
        (with_output("scores", lambda scores: 1 - scores), "scores must be in descending order: add order"),
        (with_output("labels", lambda labels: labels + 1), "labels .* got 1 to 2: .*labels - 1"),
        (with_output("weight", lambda weight: weight / 0), "weight must be finite, got NaN or infinity"),
        (with_output("tail", lambda tail: tail / 0), "tail must be finite, got NaN or infinity"),
    ],
)
def test_names_the_fault_of_a_result(change: Change, message: str) -> None:
    assert re.match(message, faults_of(Returning(change))[0])


def test_labels_need_classes() -> None:
    plain = DetectorSpec(8, 8)
    three = ("boxes", "scores", "counts")
    good = Returning(lambda found: {name: found[name] for name in three}, plain)
    assert faults_of(good) == []
    labelled = Returning(lambda found: {name: found[name] for name in (*three, "labels")}, plain)
    assert faults_of(labelled) == [
        'detect returns labels, but there are no classes: add classes=("...", "...") to the DetectorSpec'
    ]
