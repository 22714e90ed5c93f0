"""An export compares its files with the detector in each runtime, and refuses those that stray."""

import dataclasses
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from built_runner import built_runner
from torch import Tensor
from unusual_detectors import AsManySlotsAsNeeded, BrightestRows, FittingItsOwnWay, LosingNothing
from user_detectors import Brightest, Landmarks, RedAndBlue

from lensbox.artifact.metadata import Precision
from lensbox.common.errors import ArtifactError
from lensbox.common.main import main
from lensbox.export import parity
from lensbox.export.artifact_writer import MadeArtifact, make_artifact
from lensbox.export.onnx_writer import make_onnx
from lensbox.export.parity import ParityOptions, Reference, compare_with_detector
from lensbox.runtime.artifact import Artifact
from lensbox.runtime.loading import load_artifact, load_artifact_bytes

THRESHOLDS = (0.04, 0.3)
OPTIONS = ParityOptions(batches=(1, 5))


@pytest.fixture(scope="module")
def reference() -> Reference:
    return Reference(RedAndBlue(), THRESHOLDS, OPTIONS)


@pytest.fixture(scope="module")
def made() -> MadeArtifact:
    return make_artifact(RedAndBlue(), "colors.pt", *THRESHOLDS)


def compare(made: MadeArtifact, reference: Reference) -> Any:
    return compare_with_detector(made.content, "colors.pt", made.metadata, reference)


def test_a_file_that_answers_alike(made: MadeArtifact, reference: Reference) -> None:
    rows = compare(made, reference)
    assert [(row.runtime, row.device, row.batch) for row in rows] == [
        ("Python", "cpu", 1),
        ("Python", "cpu", 5),
    ]
    compared = reference.with_picture(made.metadata.self_test.image)
    assert len(compared.found) == len(reference.found) + 1
    for row in rows:
        assert row.detections == sum(len(found.scores) for found in compared.found) > 100
        assert row.boxes < 0.01
        assert row.exchanged == 0
        assert row.loss == 0
        assert row.milliseconds > 0


Found = dict[str, Tensor]


def moved(found: Found) -> Found:
    return {**found, "boxes": found["boxes"] + 3}


def moved_far(found: Found) -> Found:
    return {**found, "boxes": found["boxes"] + 52}


def other_labels(found: Found) -> Found:
    return {**found, "labels": 1 - found["labels"]}


def without_the_best(found: Found) -> Found:
    return {name: value if name == "counts" else value.roll(-1, dims=1) for name, value in found.items()} | {
        "counts": (found["counts"] - 1).clamp(min=0)
    }


def invented(found: Found) -> Found:
    boxes, scores = found["boxes"].clone(), found["scores"].clone()
    index = found["counts"].long().clamp(max=scores.shape[1] - 1)
    every = torch.arange(len(index))
    boxes[every, index], scores[every, index] = torch.tensor([1.0, 1.0, 9.0, 9.0]), 0.9
    return {
        **found,
        "boxes": boxes,
        "scores": scores,
        "counts": (found["counts"] + 1).clamp(max=scores.shape[1]),
    }


def surer(found: Found) -> Found:
    return {**found, "scores": found["scores"] + 0.002}


def no_numbers(found: Found) -> Found:
    return {**found, "boxes": found["boxes"] * torch.nan}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (moved, "are others, or moved by more than 0.05 px of the canvas"),
        (moved_far, "are others, or moved by more than 0.05 px"),
        (other_labels, "are others"),
        (without_the_best, "are others"),
        (invented, "are others"),
        (surer, r"scores changed by up to 0\.002"),
        (no_numbers, "are others"),
    ],
)
@pytest.mark.parametrize("batch", OPTIONS.batches)
def test_planted_errors(
    change: Callable[[Found], Found],
    message: str,
    batch: int,
    made: MadeArtifact,
    reference: Reference,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of one batch size alone, as AOTInductor's once was."""

    class Wrong(Artifact):
        def detect_named(self, images: Tensor, *thresholds: Any) -> Found:
            found = super().detect_named(images, *thresholds)
            return change(found) if len(images) == batch else found

    def load(*arguments: Any, **options: Any) -> Artifact:
        artifact = load_artifact_bytes(*arguments, **options)
        return Wrong(artifact.module, artifact.metadata, artifact.device)

    monkeypatch.setattr(parity, "load_artifact_bytes", load)
    with pytest.raises(ArtifactError, match=f"colors.pt .* in batches of {batch}: .*{message}"):
        compare(made, reference)


@pytest.mark.parametrize("name", ["corners", "embedding", "cell"])
def test_planted_errors_of_what_else_there_is(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    thresholds = (0.3, 0.5)
    made = make_artifact(Landmarks(), "landmarks.pt", *thresholds)
    reference = Reference(Landmarks(), thresholds, OPTIONS)
    for row in compare_with_detector(made.content, "landmarks.pt", made.metadata, reference):
        assert (row.exchanged, row.detections > 50) == (0, True)

    class Wrong(Artifact):
        def detect_named(self, images: Tensor, *thresholds: Any) -> Found:
            found = super().detect_named(images, *thresholds)
            return {**found, name: (found[name] * 1.1).to(found[name].dtype)}

    def load(*arguments: Any, **options: Any) -> Artifact:
        artifact = load_artifact_bytes(*arguments, **options)
        return Wrong(artifact.module, artifact.metadata, artifact.device)

    monkeypatch.setattr(parity, "load_artifact_bytes", load)
    with pytest.raises(ArtifactError, match=r"or have other extras \(by up to 0\.[01]"):
        compare_with_detector(made.content, "landmarks.pt", made.metadata, reference)


def test_an_error_in_the_self_tests_picture_alone(
    made: MadeArtifact, reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = load_artifact_bytes(made.content, "colors.pt")
    (canvas,), _ = artifact.module.preprocess([made.metadata.self_test.image])
    detect_named = Artifact.detect_named

    def wrong(self: Artifact, images: Tensor, *thresholds: Any) -> Found:
        found = detect_named(self, images, *thresholds)
        is_it = (images == canvas).flatten(1).all(dim=1)
        return {**found, "scores": found["scores"] + 0.1 * is_it[:, None]}

    monkeypatch.setattr(Artifact, "detect_named", wrong)
    with pytest.raises(ArtifactError, match=r"scores changed by up to 0\.1"):
        compare(made, reference)


def test_a_loss_that_is_another(
    made: MadeArtifact, reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Artifact, "loss", lambda self, predictions, targets: reference.loss * 1.0001)
    with pytest.raises(ArtifactError, match=r"the loss changed by a part of 0\.0001"):
        compare(made, reference)


def test_a_loss_of_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a detector's own may be: from it every other is infinitely far."""
    reference = Reference(LosingNothing(), THRESHOLDS, OPTIONS)
    made = make_artifact(LosingNothing(), "colors.pt", *THRESHOLDS)
    assert [row.loss for row in compare(made, reference)] == [0.0, 0.0]
    monkeypatch.setattr(Artifact, "loss", lambda self, predictions, targets: 1e-9)
    with pytest.raises(ArtifactError, match="the loss changed by a part of inf"):
        compare(made, reference)


def test_another_precision_may_move_as_far_as_was_said(made: MadeArtifact) -> None:
    """And float32 no further than rounding does."""
    reference = Reference(RedAndBlue(), THRESHOLDS, dataclasses.replace(OPTIONS, tolerance=0.5))
    precision = Precision("float16", "cpu", 1, 1, 0.1, 0.1, 0.0)
    rounded = made._replace(metadata=dataclasses.replace(made.metadata, precision=precision))
    exact = reference.found
    reference.found = [found._replace(boxes=found.boxes + 0.4) for found in exact]
    assert all(row.exchanged == 0 and 0.39 < row.boxes < 0.41 for row in compare(rounded, reference))
    with pytest.raises(ArtifactError, match=r"moved by more than 0\.05 px of the canvas \(by up to 0\.4\)"):
        compare(made, reference)
    reference.found = [found._replace(boxes=found.boxes + 0.6) for found in exact]
    with pytest.raises(ArtifactError, match=r"moved by more than 0\.5 px of the canvas \(by up to 0\.6\)"):
        compare(rounded, reference)


def test_scores_that_are_no_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the one detection that there is: it still has its box."""
    reference = Reference(Brightest(), THRESHOLDS, OPTIONS)
    made = make_artifact(Brightest(), "brightest.pt", *THRESHOLDS)
    detect_named = Artifact.detect_named

    def wrong(self: Artifact, images: Tensor, *thresholds: Any) -> Found:
        found = detect_named(self, images, *thresholds)
        return {**found, "scores": found["scores"] * torch.nan}

    monkeypatch.setattr(Artifact, "detect_named", wrong)
    with pytest.raises(ArtifactError, match="scores changed by up to nan"):
        compare(made, reference)


def test_a_detector_with_as_many_slots_as_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """In some canvases that is none; in the others, all slots are taken, and yet there was room for more."""
    reference = Reference(AsManySlotsAsNeeded(), (0.6, 0.5), OPTIONS)
    made = make_artifact(AsManySlotsAsNeeded(), "rows.pt", 0.6, 0.5)
    assert {len(found.scores) for found in reference.found} >= {0, 3}
    assert [row.exchanged for row in compare(made, reference)] == [0, 0]
    detect_named = Artifact.detect_named

    def without_the_last(self: Artifact, images: Tensor, *thresholds: Any) -> Found:
        found = detect_named(self, images, *thresholds)
        return {**found, "counts": (found["counts"] - 1).clamp(min=0)}

    monkeypatch.setattr(Artifact, "detect_named", without_the_last)
    with pytest.raises(ArtifactError, match="are others"):
        compare(made, reference)


@pytest.mark.parametrize(
    "make", [RedAndBlue, Landmarks, BrightestRows, AsManySlotsAsNeeded, FittingItsOwnWay]
)
def test_the_runner_is_compared_as_well(make: Callable[[], Any]) -> None:
    reference = Reference(make(), THRESHOLDS, dataclasses.replace(OPTIONS, runner=built_runner()))
    metadata = make_artifact(make(), "a.pt", *THRESHOLDS, reference=reference).metadata
    rows = [row for row in metadata.parity if row.runtime == "C++"]
    assert [row.batch for row in rows] == [1, 5]
    assert all(row.boxes < 0.01 and row.exchanged == 0 and row.milliseconds > 0 for row in rows)
    assert all(row.loss is not None and row.loss < 1e-6 for row in rows)


@pytest.mark.onnx_runner
@pytest.mark.parametrize("make", [RedAndBlue, Landmarks])
def test_the_runner_is_compared_with_an_onnx_file(make: Callable[[], Any]) -> None:
    reference = Reference(make(), THRESHOLDS, dataclasses.replace(OPTIONS, runner=built_runner()))
    metadata = make_onnx(make(), "a.onnx", *THRESHOLDS, reference=reference).metadata
    assert [(row.runtime, row.batch) for row in metadata.parity] == [
        ("Python", 1),
        ("Python", 5),
        ("C++", 1),
        ("C++", 5),
    ]
    assert all(row.boxes < 0.01 and row.exchanged == 0 for row in metadata.parity)
    assert all(row.loss is not None and row.loss < 1e-6 for row in metadata.parity)


def test_a_runner_without_onnxruntime_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    program = tmp_path / "runner"
    program.write_text("#!/bin/sh\necho 'lensbox_runner 0.1.0 (libtorch 2.13.0)'\n")
    program.chmod(0o755)
    reference = Reference(RedAndBlue(), THRESHOLDS, dataclasses.replace(OPTIONS, runner=program))
    with caplog.at_level(logging.INFO):
        metadata = make_onnx(RedAndBlue(), "a.onnx", *THRESHOLDS, reference=reference).metadata
    assert {row.runtime for row in metadata.parity} == {"Python"}
    assert f"a.onnx is not compared in C++: {program} has no onnxruntime" in caplog.text


def test_a_runner_that_fails(made: MadeArtifact, tmp_path: Path) -> None:
    program = tmp_path / "runner"
    program.write_text("#!/bin/sh\necho no device >&2\nexit 2\n")
    options = dataclasses.replace(OPTIONS, runner=program)
    with pytest.raises(ArtifactError, match=r"cannot be compared with .*runner: .*Permission"):
        compare(made, Reference(RedAndBlue(), THRESHOLDS, options))
    program.chmod(0o755)
    with pytest.raises(ArtifactError, match="runner loss failed: no device"):
        compare(made, Reference(RedAndBlue(), THRESHOLDS, options))


def test_the_command_prints_stores_and_reports(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = ["--model", "user_detectors:RedAndBlue", "--output", str(tmp_path / "colors")]
    report = tmp_path / "parity.md"
    assert main(["export", *model, "--format", "torchscript,onnx", "--report", str(report)]) == 0
    out, err = capfd.readouterr()
    assert out.split() == [str(tmp_path / f"colors.{suffix}") for suffix in ("pt", "onnx")] + [str(report)]
    assert err.count("Python on cpu in batches of 32: boxes within ") == 2
    text = report.read_text()
    for suffix in ("pt", "onnx"):
        rows = load_artifact(tmp_path / f"colors.{suffix}").metadata.parity
        assert [row.batch for row in rows] == [1, 2, 7, 32]
        lines = [line for line in text.splitlines() if line.startswith(f"| colors.{suffix} | Python | cpu |")]
        for row, line in zip(rows, lines, strict=True):
            assert f"| {row.batch} | {row.boxes:.2g} |" in line
    assert main(["info", str(tmp_path / "colors.onnx")]) == 0
    assert "parity, Python on cpu: boxes within " in capfd.readouterr().out


def test_the_command_without_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = ["--model", "user_detectors:RedAndBlue", "--output", str(tmp_path / "colors.pt"), "--no-parity"]
    assert main(["export", *model]) == 0
    assert load_artifact(tmp_path / "colors.pt").metadata.parity == ()
    assert main(["export", *model, "--report", str(tmp_path / "report.md")]) == 2
    assert "--runner and --report must come with --parity" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--runner", "missing"],
            "must be the program lensbox_runner, got missing",
        ),
        (["--report", "x.onnx"], "--report must be another file than --output, got x.onnx"),
    ],
)
def test_usage_errors(options: list[str], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "--format", "torchscript,onnx", "--output", "x", *options]) == 2
    assert message in capfd.readouterr().err
