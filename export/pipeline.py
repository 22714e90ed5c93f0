"""The steps of an export, the same for every format: check, build, measure, describe, pack, verify, write."""

import dataclasses
import logging
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch import nn

import lensbox.ops
from lensbox.artifact.metadata import (
    FORMAT_VERSION,
    ArtifactMetadata,
    Canvas,
    Extra,
    Precision,
    Reading,
    Thresholds,
)
from lensbox.common.errors import ArtifactError
from lensbox.common.files import atomic_write
from lensbox.export.plan import ExportOptions, Model, Plan
from lensbox.export.verify.precision import describe_change, measure_precision
from lensbox.export.verify.report import parity_report
from lensbox.export.verify.self_test import build_self_test
from lensbox.export.verify.verifier import verify
from lensbox.model import Detector, weights_sha256
from lensbox.model.protocol_check import named

_logger = logging.getLogger(__name__)

# The formats that are artifacts: a module for each, with `build`.
ARTIFACTS = ("torchscript", "aoti", "onnx")
_PACKAGES = {"onnx": ("onnx", "onnxruntime", "onnxscript")}


class MadeArtifact(NamedTuple):
    """The verified content of an artifact, not written yet."""

    content: bytes
    metadata: ArtifactMetadata


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

    kind: the format, one of `ARTIFACTS`. options: fields of `ExportOptions`. The file is written only after
    it was loaded, passed its self-test and found the same as the detector. Raises ArtifactError if the
    detector breaks the protocol, the format cannot express the detector, or the file finds other things;
    InputError for weights that are not finite, OSError if the file cannot be written, and ValueError for
    thresholds outside 0..1.
    """
    plan = Plan(detector, ExportOptions(score_threshold, iou_threshold, **options))
    made = make_artifact(plan, kind, str(path))
    atomic_write(path, made.content)
    return made.metadata


def make_artifact(plan: Plan, kind: str, name: str) -> MadeArtifact:
    """Return the verified artifact. name: the file's name in errors."""
    _logger.info("making the file for %s", kind)
    model: Model = import_module(f"lensbox.export.formats.{kind}").build(plan)
    precision = _precision(plan, model) if plan.options.dtype != "float32" else None
    metadata = _metadata(plan, model, precision)
    content, reference = model.pack(metadata), plan.reference
    _logger.info("loading the file back and comparing it with the detector")
    rows = verify(
        content,
        name,
        metadata,
        reference,
        plan.runtimes,
        devices=model.devices,
        more_batches=model.more_batches,
    )
    if rows:
        metadata = dataclasses.replace(metadata, parity=rows)
        content = model.pack(metadata)
    return MadeArtifact(content, metadata)


def make_files(
    detector: Detector, paths: Mapping[str, Path], options: ExportOptions
) -> tuple[dict[Path, bytes], str]:
    """Return the content of each file, and the comparison with the detector as Markdown.

    paths: by format, one of `ARTIFACTS`. ONNX needs float32. Raises the errors of `save_artifact`.
    """
    for name in paths:
        _require_packages(name)
    plan = Plan(detector, options)
    files: dict[Path, bytes] = {}
    described: dict[Path, ArtifactMetadata] = {}
    for name in ARTIFACTS:
        if name in paths:
            path = paths[name]
            files[path], described[path] = make_artifact(plan, name, str(path))
            _report(path, len(files[path]), described[path])
    return files, parity_report(described, plan.reference) if described and options.parity else ""


def _require_packages(name: str) -> None:
    """Raise ArtifactError if packages of a format are missing, before anything is computed."""
    missing_packages = [package for package in _PACKAGES.get(name, ()) if find_spec(package) is None]
    if missing_packages:
        raise ArtifactError(
            f"--format {name} needs the Python packages {', '.join(missing_packages)}: "
            f"pip install 'lensbox[{name}]'"
        )


def _precision(plan: Plan, model: Model) -> Precision:
    options, detect = plan.options, model.detect
    if detect is None:
        raise ValueError(f"dtype must be float32 for this format, got {options.dtype}")
    _logger.info("measuring the changes by %s", options.dtype)
    thresholds = plan.reference.thresholds
    return measure_precision(
        lambda canvases: detect(canvases, *thresholds),
        plan.reference,
        options.dtype,
        options.device.type,
        options.tolerance,
    )


def _metadata(plan: Plan, model: Model, precision: Precision | None) -> ArtifactMetadata:
    detector, specification = plan.detector, plan.detector.specification
    if precision is None:
        self_test = plan.self_test
    else:
        _logger.info("choosing a self-test")
        self_test = build_self_test(detector, precision.dtype, model.converted, plan.carried)
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
        output=describe_outputs(detector),
        canvas=Canvas(specification.height, specification.width, specification.channels, specification.fill),
        reading=Reading(specification.orientation, specification.jpeg_oversampling),
        defaults=Thresholds(*plan.thresholds),
        ops=model.ops,
        methods=model.methods,
        self_test=self_test,
        classes=tuple(specification.classes),
        extras=extras,
        precision=precision,
        compiled=model.compiled,
        batch=model.batch,
    )


def describe_outputs(detector: Detector) -> dict[str, Any]:
    """Return dtype, shape and unit of each output of `detect`; K where the number of slots varies."""
    specification = detector.specification
    with torch.no_grad():
        canvases = [torch.zeros(batch, *specification.canvas_shape, dtype=torch.uint8) for batch in (1, 2)]
        single, double = (named(detector.detect(batch, 0.0, 0.5)) for batch in canvases)
    slots = single["boxes"].shape[1]
    shape = ["B", slots if double["boxes"].shape[1] == slots else "K"]
    outputs: dict[str, Any] = {}
    for name, value in single.items():
        dtype = str(value.dtype).removeprefix("torch.")
        outputs[name] = {"dtype": dtype, "shape": [*shape, *value.shape[2:]] if name != "counts" else ["B"]}
    for name in ("boxes", *specification.points):
        outputs[name]["unit"] = "canvas pixels, xyxy" if name == "boxes" else "canvas pixels, xy"
    return outputs


def _report(path: Path, size: int, metadata: ArtifactMetadata) -> None:
    _logger.info(
        "%s: %d bytes, torch %s, weights %s, self-test with %d detections passed",
        path,
        size,
        metadata.torch_version,
        metadata.weights_sha256[:12],
        len(metadata.self_test.scores),
    )
    for row in metadata.parity:
        _logger.info(
            "%s on %s in batches of %d: boxes within %.2g px and scores within %.2g of PyTorch's, %.3g ms",
            row.runtime,
            row.device,
            row.batch,
            row.boxes,
            row.scores,
            row.milliseconds,
        )
    if metadata.precision is not None:
        _logger.info("%s", describe_change(metadata.precision))
