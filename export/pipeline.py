"""The steps of an export, the same for every format: check, build, measure, describe, pack, verify, write."""

import contextlib
import logging
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

import lensbox.ops
from lensbox.common.canvas import Canvas
from lensbox.common.errors import ArtifactError
from lensbox.common.files import atomic_write
from lensbox.common.torch_settings import torch_defaults
from lensbox.export.detector.copies import REDUCED
from lensbox.export.options import FORMATS, ExportOptions
from lensbox.export.plan import Built, ExportPlan
from lensbox.export.verify.comparer import instability
from lensbox.export.verify.precision import describe_change, measure_precision, operand_rounding
from lensbox.export.verify.self_test import reduced_self_test
from lensbox.export.verify.verifier import running, verify
from lensbox.model import Detector, weights_sha256
from lensbox.model.protocol_check import Answer
from lensbox.runtime.file.metadata import (
    FORMAT_VERSION,
    METHODS,
    ArtifactMetadata,
    Defaults,
    Extra,
    Precision,
    Reading,
)
from lensbox.runtime.loading import load_artifact_bytes

_logger = logging.getLogger(__name__)


def save_artifact(
    detector: Detector,
    path: str | Path,
    score_threshold: float | None = None,
    iou_threshold: float | None = None,
    *,
    kind: str = "torchscript",
    **options: Any,
) -> ArtifactMetadata:
    """Write a detector as an artifact, a file with metadata and a self-test; return the metadata.

    kind: the format: a name in `options.FORMATS`. options: fields of `ExportOptions`. The file is written
    only after it was loaded, passed its self-test and found the same as the detector. Raise ArtifactError if
    the detector breaks the protocol, the format cannot express the detector, or the file finds other things;
    InputError for weights that are not finite, OSError if the file cannot be written, and ValueError for
    wrong options.
    """
    with torch_defaults():
        plan = ExportPlan(detector, ExportOptions(score_threshold, iou_threshold, formats=(kind,), **options))
        content, metadata = make_artifact(plan, kind, str(path))
    atomic_write(path, content)
    return metadata


def make_artifact(plan: ExportPlan, kind: str, name: str) -> tuple[bytes, ArtifactMetadata]:
    """Return the verified content of a file, and its metadata. name: the file's name in errors."""
    try:
        return _made(plan, kind, name)
    except ArtifactError as error:
        parameters = cast(nn.Module, plan.detector).parameters()
        dtypes = {value.dtype for value in parameters if value.is_floating_point()} - {torch.float32}
        if not dtypes:
            raise
        found = " and ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))
        advice = f"the network has weights in {found}: convert it with .float() before the export"
        raise ArtifactError(f"{error}\n  {advice}") from error


def _made(plan: ExportPlan, kind: str, name: str) -> tuple[bytes, ArtifactMetadata]:
    _logger.info("making the file for %s", kind)
    built: Built = import_module(f"lensbox.export.formats.{kind}").build(plan)
    try:
        return _finished(plan, built, name)
    except ArtifactError as error:
        if (reason := instability(plan.reference)) is not None:
            raise ArtifactError(f"the detector cannot be exported: {reason}") from error
        if built.otherwise is None:
            raise
        try:
            finished = _finished(plan, built.otherwise(), name)
        except ArtifactError:
            raise error from None
        _logger.warning("the detector is traced, as its compiled code is wrong: %s", error)
        return finished


def _finished(plan: ExportPlan, built: Built, name: str) -> tuple[bytes, ArtifactMetadata]:
    dtype = plan.options.dtype
    metadata = _metadata(plan, built)
    if dtype != "float32":
        metadata = _measured(plan, built, metadata, name)
    content = built.pack(metadata)
    _logger.info("loading the file back and comparing it with the detector")
    # 16 bits round in another way on another device: such a file is held to what was measured on its own.
    devices = {plan.device.type} if dtype in REDUCED else {"cpu", plan.device.type}
    devices &= set(built.devices)
    verify(content, name, metadata, plan.reference, plan.options, devices=sorted(devices))
    _logger.info(
        "%s: %d bytes, torch %s, weights %s, self-test with %d detections passed",
        name,
        len(content),
        metadata.torch_version,
        metadata.weights_sha256[:12],
        len(metadata.self_test.expected.scores),
    )
    if metadata.precision is not None:
        _logger.info("%s", describe_change(metadata.precision))
    return content, metadata


def make_files(detector: Detector, paths: Mapping[str, Path], options: ExportOptions) -> dict[Path, bytes]:
    """Return the content of each file. paths: by format. Raise the errors of `save_artifact`."""
    for name in paths:  # before anything is computed
        if lacking := [package for package in FORMATS[name].packages if find_spec(package) is None]:
            raise ArtifactError(
                f"--format {name} needs the Python packages {', '.join(lacking)}: pip install "
                f"'lensbox[{name}]'"
            )
    plan = ExportPlan(detector, options)
    return {path: make_artifact(plan, name, str(path))[0] for name, path in paths.items()}


def _measured(plan: ExportPlan, built: Built, metadata: ArtifactMetadata, name: str) -> ArtifactMetadata:
    """Return the metadata with the changes by a precision other than float32, and a self-test for it."""
    dtype, device = plan.options.dtype, plan.device.type
    _logger.info("measuring the changes by %s", dtype)
    draft = replace(metadata, precision=Precision(dtype, device, 1, 1, 0.0, 0.0, 0.0))  # type: ignore[arg-type]
    artifact = load_artifact_bytes(built.pack(draft), name, plan.device)
    imitated = operand_rounding() if dtype == "tf32" and device == "cpu" else contextlib.nullcontext()

    def detect(canvases: Tensor, score_threshold: float, iou_threshold: float) -> Answer:
        with imitated:
            found = artifact.detect(canvases, score_threshold, iou_threshold)
        return {name: value.cpu() for name, value in found.items()}

    with running(name, device):
        precision = measure_precision(detect, plan.reference, dtype, device, plan.options.tolerance)
    test = metadata.self_test
    if dtype in REDUCED:
        test = reduced_self_test(plan.detector, test, detect)
    return replace(metadata, precision=precision, self_test=test)


def _metadata(plan: ExportPlan, built: Built) -> ArtifactMetadata:
    """Return the metadata of a float32 file."""
    detector, specification = plan.detector, plan.detector.specification
    extras = {name: Extra(tuple(shape), "points") for name, shape in specification.points.items()}
    extras |= {name: Extra(tuple(shape), "values") for name, shape in specification.values.items()}
    return ArtifactMetadata(
        format_version=FORMAT_VERSION,
        name=specification.name,
        lensbox_version=lensbox.ops.read_build_info(lensbox.ops.library_path()).version,
        torch_version=torch.__version__.split("+")[0],
        weights_sha256=weights_sha256(cast(nn.Module, detector)),
        input={
            "canvas": {"dtype": "uint8", "shape": ["B", *specification.canvas_shape]},
            "image": {"dtype": "uint8", "shape": ["C", "H", "W"], "channels": [1, 3, 4]},
        },
        output=_described_outputs(plan),
        canvas=Canvas.of(specification),
        reading=Reading(specification.orientation, specification.jpeg_oversampling),
        defaults=Defaults(*plan.thresholds),
        ops=built.ops,
        methods=tuple(name for name in METHODS if name not in built.omitted),
        self_test=plan.self_test,
        classes=tuple(specification.classes),
        extras=extras,
        compiled=built.compiled,
        batch=built.batch,
    )


def _described_outputs(plan: ExportPlan) -> dict[str, Any]:
    """Return dtype, shape and unit of each output of `detect`; K where the number of slots varies."""
    reference, slots = plan.reference, plan.reference.slots
    batch = ["B", "K" if slots is None else slots]
    outputs: dict[str, Any] = {
        name: {
            "dtype": str(dtype).removeprefix("torch."),
            "shape": [*batch, *shape] if name != "counts" else ["B"],
        }
        for name, (dtype, shape) in reference.outputs.items()
    }
    for name in ("boxes", *plan.detector.specification.points):
        outputs[name]["unit"] = "canvas pixels, xyxy" if name == "boxes" else "canvas pixels, xy"
    return outputs
