"""The verifier accepts rounding and rejects files with other detections, for each batch size."""

import dataclasses
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from programs import built_runner
from small_detectors import AsManySlotsAsNeeded, FittingItsOwnWay, Landmarks, RedAndBlue
from torch import Tensor

from lensbox.export import ExportOptions
from lensbox.export.pipeline import make_artifact
from lensbox.export.plan import ExportPlan
from lensbox.export.verify.reference import Reference
from lensbox.export.verify.verifier import verify
from lensbox.model import Detector
from lensbox.runtime import Artifact, ArtifactError
from lensbox.runtime.detect.self_test import SelfTestReport
from lensbox.runtime.file.metadata import ArtifactMetadata, Precision

THRESHOLDS = (0.04, 0.3)
Answer = dict[str, Tensor]


Made = tuple[bytes, ArtifactMetadata, Reference]


def made_of(detector: Detector, kind: str = "torchscript") -> Made:
    plan = ExportPlan(detector, ExportOptions(*THRESHOLDS))
    reference = Reference(plan.detector, THRESHOLDS, batches=(1, 5))
    return *make_artifact(plan, kind, f"colors.{kind}"), reference


@pytest.fixture(scope="module")
def colors() -> Made:
    return made_of(RedAndBlue())


def check(content: bytes, metadata: ArtifactMetadata, reference: Reference, **options: Any) -> None:
    verify(content, "colors.pt", metadata, reference, ExportOptions(**options))


def answering(change: Callable[[Answer, Tensor], Answer], monkeypatch: pytest.MonkeyPatch) -> None:
    """Change the answers of all artifacts. change: takes answers and canvases."""
    detect = Artifact.detect

    def wrong(self: Artifact, images: Tensor, *thresholds: Any) -> Answer:
        return change(dict(detect(self, images, *thresholds)), images)

    monkeypatch.setattr(Artifact, "detect", wrong)


def test_rejects_errors_in_one_batch_size(colors: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """`tests/runtime/detect/test_self_test.py` has all kinds of errors that the comparison of sets finds."""
    answering(lambda found, images: {**found, "boxes": found["boxes"] + 3 * (len(images) == 5)}, monkeypatch)
    with pytest.raises(ArtifactError, match=r"with Python on cpu does not .* of 5 at .* are missing, new"):
        check(*colors)


def test_rejects_a_file_that_fails_its_self_test(colors: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    report = SelfTestReport(False, ["losses differ"], 0.0, 0.0, 1.0)
    monkeypatch.setattr(Artifact, "self_test", lambda self: report)
    with pytest.raises(ArtifactError, match=r"colors\.pt fails its self-test: losses differ"):
        check(*colors)


@pytest.mark.parametrize("name", ["score", "iou"])
def test_rejects_a_constant_threshold(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = ExportPlan(RedAndBlue(), ExportOptions(0.4, 0.3))
    detect = Artifact.detect

    def constant(self: Artifact, images: Tensor, score: Any = None, iou: Any = None) -> Answer:
        score, iou = (0.04, iou) if name == "score" else (score, 0.3)
        return dict(detect(self, images, score, iou))

    monkeypatch.setattr(Artifact, "detect", constant)
    with pytest.raises(ArtifactError, match="does not find what the detector finds, in batches of 7 at"):
        make_artifact(plan, "torchscript", "colors.pt")


@pytest.mark.parametrize(("factor", "change"), [(1.0001, r"0\.0001"), (float("nan"), "nan")])
def test_rejects_a_changed_loss(
    colors: Made, monkeypatch: pytest.MonkeyPatch, factor: float, change: str
) -> None:
    monkeypatch.setattr(Artifact, "loss", lambda self, predictions, targets: colors[2].loss * factor)
    with pytest.raises(ArtifactError, match=f"change of the loss is {change}"):
        check(*colors)


def test_tolerance_applies_to_reduced_precision(
    colors: Made, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    content, metadata, reference = colors
    caplog.set_level(logging.INFO)
    precision = Precision("float16", "cpu", 1, 1, 0.1, 0.1, 0.0)
    rounded = dataclasses.replace(metadata, precision=precision)
    shift = 0.4
    answering(lambda found, images: {**found, "boxes": found["boxes"] + shift}, monkeypatch)
    check(content, rounded, reference, tolerance=0.5)
    assert caplog.text.count("boxes within 0.4 px (at most 0.5), scores within 0 (at most 0.02), 0 unm") == 1
    with pytest.raises(ArtifactError, match=r"moved by more than 0\.01 px of the canvas \(by up to 0\.4\)"):
        check(*colors, tolerance=0.5)
    shift = 0.6
    with pytest.raises(ArtifactError, match=r"moved by more than 0\.5 px of the canvas \(by up to 0\.6\)"):
        check(content, rounded, reference, tolerance=0.5)


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (RedAndBlue, "torchscript"),
        pytest.param(Landmarks, "onnx", marks=pytest.mark.onnx_runner),
        pytest.param(FittingItsOwnWay, "torchscript", marks=pytest.mark.exhaustive),
        pytest.param(AsManySlotsAsNeeded, "torchscript", marks=pytest.mark.exhaustive),
    ],
)
def test_compares_the_runner(make: Callable[[], Any], kind: str, caplog: pytest.LogCaptureFixture) -> None:
    made = made_of(make(), kind)
    caplog.set_level(logging.DEBUG)
    check(*made, runner=built_runner())
    rows = [
        (record.levelname, found[1])
        for record in caplog.records
        if (
            found := re.search(
                r"with C\+\+ on cpu in batches of (.*): .* 15 pictures, .* 0 unmatched", record.message
            )
        )
    ]
    assert rows == [("DEBUG", "1"), ("DEBUG", "5"), ("INFO", "1 and 5")]


def test_reports_a_failing_runner(colors: Made, tmp_path: Path) -> None:
    program = tmp_path / "runner"
    program.write_text("#!/bin/sh\necho no device >&2\nexit 2\n")
    with pytest.raises(ArtifactError, match=r"cannot be compared with .*runner: .*Permission"):
        check(*colors, runner=program)
    program.chmod(0o755)
    with pytest.raises(ArtifactError, match="runner loss failed: no device"):
        check(*colors, runner=program)
