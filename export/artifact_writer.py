"""Writes artifacts: `lensbox.runtime` reads them and says what they are."""

import copy
import dataclasses
import io
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch import nn

import lensbox.ops
from lensbox.artifact.metadata import (
    FORMAT_VERSION,
    METADATA_FILE,
    ArtifactMetadata,
    Canvas,
    Extra,
    Library,
    Precision,
    Reading,
    Thresholds,
)
from lensbox.artifact.seal import sealed_zip
from lensbox.artifact.self_test import SelfTest
from lensbox.common.errors import ArtifactError, InputError
from lensbox.common.files import atomic_write
from lensbox.export.parity import Reference, compare_with_detector
from lensbox.export.precision import (
    MANTISSA_BITS,
    PrecisionOptions,
    in_precision,
    measured_precision,
)
from lensbox.export.scripting_error import scripting_reason
from lensbox.export.self_test_builder import build_self_test
from lensbox.export.torchscript import custom_op_schemas, script_and_freeze
from lensbox.export.user_ops import described_libraries
from lensbox.export.wrapper import DetectorWrapper, deployed, methods_of
from lensbox.model import Detector, DetectorSpec, missing, weights_sha256
from lensbox.model.protocol_check import named
from lensbox.model.weights_file import non_finite_weights
from lensbox.runtime.loading import load_artifact_bytes
from lensbox.runtime.torchscript import quiet_torchscript

_logger = logging.getLogger(__name__)

_MOST_NAMES = 10  # of classes, in a message


def save_artifact(
    detector: Detector,
    path: str | Path,
    score_threshold: float | None = None,
    iou_threshold: float | None = None,
    precision: PrecisionOptions | None = None,
    carried_ops: Sequence[Path] = (),
) -> ArtifactMetadata:
    """Writes the artifact of a detector.

    The thresholds are the defaults it carries, None for the detector's. precision: None for float32.
    carried_ops: op libraries, loaded already, that the artifact is to carry.

    Before the file is written it is loaded back and must pass its self-test, so an artifact appears whole and
    working or not at all. Raises ArtifactError, naming what to change where the detector does not follow the
    protocol, TorchScript cannot compile it or another precision moves its detections too far; InputError for
    weights that are not finite, OSError if the file cannot be written, and ValueError for thresholds outside
    0..1.
    """
    made = make_artifact(detector, str(path), score_threshold, iou_threshold, precision, carried_ops)
    atomic_write(path, made.content)
    return made.metadata


class MadeArtifact(NamedTuple):
    """An artifact's file that has proven itself and is not written yet."""

    content: bytes
    metadata: ArtifactMetadata


def make_artifact(
    detector: Detector,
    name: str,
    score_threshold: float | None = None,
    iou_threshold: float | None = None,
    precision: PrecisionOptions | None = None,
    carried_ops: Sequence[Path] = (),
    reference: Reference | None = None,
    forward: str | None = None,
) -> MadeArtifact:
    """The file that `save_artifact` writes; errors call it `name`.

    reference: answers of the detector that the file has to give in every runtime; its metadata then holds the
    comparison. forward: TorchScript source of a method `forward` beside an artifact's methods, which it may
    call, for servers that call nothing else.
    """
    precision = precision or PrecisionOptions()
    detector, thresholds = checked_for_export(detector, score_threshold, iou_threshold)
    specification = detector.specification
    _logger.info("scripting and freezing the detector")
    module = in_precision(lambda: _compile(detector, forward), precision.dtype, specification)
    change = None
    if precision.dtype != "float32":
        _logger.info("measuring what %s changes", precision.dtype)
        change = measured_precision(_compile(detector), module, precision, specification, thresholds)
    libraries = described_libraries(carried_ops)
    metadata = describe(
        detector,
        thresholds,
        change,
        ops=custom_op_schemas(module, methods_of(detector)),
        converted=module if precision.dtype in ("float16", "bfloat16") else None,
    )
    metadata = dataclasses.replace(metadata, libraries=tuple(libraries))

    content = _written(module, metadata, libraries)
    _logger.info("loading the artifact back and running its self-test")
    report = load_artifact_bytes(content, name).self_test()
    if not report.passed:
        raise ArtifactError(f"the exported detector fails its self-test: {'; '.join(report.failures)}")
    if reference is not None:
        _logger.info("comparing it with the detector")
        rows = compare_with_detector(content, name, metadata, reference)
        metadata = dataclasses.replace(metadata, parity=rows)
        content = _written(module, metadata, libraries)
    return MadeArtifact(content, metadata)


def _written(
    module: torch.jit.ScriptModule, metadata: ArtifactMetadata, libraries: Mapping[Library, bytes]
) -> bytes:
    content = io.BytesIO()  # not a file: torch's writer ends the process when the disk is full
    with quiet_torchscript():
        extra_files: dict[str, str | bytes] = {METADATA_FILE: metadata.to_json()}
        extra_files |= {f"ops/{library.name}": data for library, data in libraries.items()}
        torch.jit.save(module, content, _extra_files=extra_files)
    return sealed_zip(content.getvalue())


def checked_for_export(
    detector: Detector, score_threshold: float | None, iou_threshold: float | None
) -> tuple[Detector, tuple[float, float]]:
    """A copy of a detector on the CPU and in eval mode, and its default thresholds, None for its own.

    Raises ArtifactError, InputError and ValueError as `save_artifact` does, before anything is computed.
    """
    for name, value in (("score_threshold", score_threshold), ("iou_threshold", iou_threshold)):
        if value is not None and not 0 <= value <= 1:
            raise ValueError(f"{name} must be between 0 and 1, got {value}")
    if isinstance(detector, nn.Module) and (reason := non_finite_weights(detector)) is not None:
        raise InputError(f"the detector cannot be exported: {reason}")
    detector = _checked_copy(detector)
    specification = detector.specification
    return detector, (
        specification.score_threshold if score_threshold is None else score_threshold,
        specification.iou_threshold if iou_threshold is None else iou_threshold,
    )


def _checked_copy(detector: Detector) -> Detector:
    """On the CPU and in eval mode: neither the caller's device nor its training mode may leak into the
    artifact, nor the reverse."""
    faults = [] if isinstance(detector, nn.Module) else missing(detector)
    if not faults:
        module = copy.deepcopy(cast(nn.Module, detector)).cpu().eval()
        faults = missing(module)
    if faults:
        raise ArtifactError("\n  ".join(["the detector cannot be exported:", *faults]))
    return cast(Detector, module)


def _compile(detector: Detector, forward: str | None = None) -> torch.jit.ScriptModule:
    try:
        # A detector of all methods may have a `forward` of its own; the wrapper has none.
        module = deployed(detector) if forward is None else DetectorWrapper(detector)
        return script_and_freeze(module, methods_of(detector), forward)
    except Exception as error:  # the compiler has many kinds, and no common one
        assert isinstance(detector, nn.Module)
        raise ArtifactError(
            "the detector cannot be exported, as TorchScript cannot compile it: "
            f"{scripting_reason(error, detector)}"
        ) from error


def describe(
    detector: Detector,
    thresholds: tuple[float, float],
    precision: Precision | None = None,
    *,
    ops: Sequence[str] = (),
    converted: Any = None,
) -> ArtifactMetadata:
    """The metadata of a detector's artifact, for which a self-test is chosen.

    precision: None for float32. ops: schemas of the operators that the file calls. converted: what the
    detector became in a reduced precision, see `build_self_test`.
    """
    _logger.info("choosing a self-test")
    dtype = precision.dtype if precision else "float32"
    try:
        self_test = build_self_test(detector, converted, MANTISSA_BITS[dtype])
    except RuntimeError as error:
        raise ArtifactError(f"the detector cannot be exported: {error}") from error
    assert isinstance(detector, nn.Module)
    specification, methods = detector.specification, methods_of(detector)
    _report_coverage(specification.classes, self_test)
    extras = {name: Extra(tuple(shape), "points") for name, shape in specification.points.items()}
    extras |= {name: Extra(tuple(shape), "values") for name, shape in specification.values.items()}
    return ArtifactMetadata(
        format_version=FORMAT_VERSION,
        name=specification.name,
        lensbox_version=lensbox.ops.read_build_info(lensbox.ops.library_path()).version,
        torch_version=torch.__version__.split("+")[0],
        weights_sha256=weights_sha256(detector),
        input={
            "canvas": {"dtype": "uint8", "shape": ["B", *_canvas_shape(specification)]},
            "image": {"dtype": "uint8", "shape": ["C", "H", "W"], "channels": [1, 3, 4]},
        },
        output=_outputs(detector),
        canvas=Canvas(specification.height, specification.width, specification.channels, specification.fill),
        reading=Reading(specification.orientation, specification.jpeg_oversampling),
        defaults=Thresholds(*thresholds),
        ops=tuple(ops),
        methods=methods,
        self_test=self_test,
        classes=tuple(specification.classes),
        extras=extras,
        precision=precision,
    )


def _report_coverage(classes: Sequence[str], test: SelfTest) -> None:
    """Says which classes no detection of the self-test is of."""
    if test.labels is None:
        return
    seen = set(test.labels.tolist())
    absent = [name for label, name in enumerate(classes) if label not in seen]
    if absent:
        more = len(absent) - _MOST_NAMES
        names = ", ".join(absent[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
        _logger.info("the self-test covers %d of %d classes, not %s", len(seen), len(classes), names)


def _canvas_shape(specification: DetectorSpec) -> list[int]:
    return [specification.channels, specification.height, specification.width]


def _outputs(detector: Detector) -> dict[str, Any]:
    """dtype, shape and unit of each output of `detect`; K where the number of slots varies."""
    specification = detector.specification
    with torch.no_grad():
        canvases = [torch.zeros(batch, *_canvas_shape(specification), dtype=torch.uint8) for batch in (1, 2)]
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
