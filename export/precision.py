"""Exports in another precision than float32: the module, and how far it moves the detections."""

import contextlib
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lensbox.artifact.metadata import Precision
from lensbox.artifact.self_test import TOLERANCES
from lensbox.common.errors import ArtifactError
from lensbox.export.precision_change import Detect, PrecisionChange, measure_change
from lensbox.export.reduced_precision import reduce_products
from lensbox.export.scripting_hints import hint_for
from lensbox.export.self_test_images import draw_faces, draw_scene
from lensbox.export.tf32 import TF32_MANTISSA_BITS, OperandRounding, tf32_switch
from lensbox.model import DetectorSpec
from lensbox.model.protocol_check import answer_faults, named
from lensbox.runtime.torchscript import quiet_torchscript, torchscript_call

DTYPES = ("float32", "tf32", "float16", "bfloat16")
MANTISSA_BITS = {"float32": TF32_MANTISSA_BITS, "tf32": TF32_MANTISSA_BITS, "float16": 10, "bfloat16": 7}

_DRAWN_PICTURES = 6  # of each kind
SCORE_LIMIT = TOLERANCES["cuda"].scores

_CPU = torch.device("cpu")


@dataclass(frozen=True)
class PrecisionOptions:
    """In which precision to export.

    dtype: one of `DTYPES`. device: where its change is measured. tolerance: the largest change of a box, in
    canvas pixels. pictures: uint8 [C, H, W], measured beside the drawn ones.
    """

    dtype: str = "float32"
    device: torch.device = _CPU
    tolerance: float = 2.0
    pictures: Sequence[Tensor] = ()


def in_precision(
    compile_module: Callable[[], torch.jit.ScriptModule], dtype: str, specification: DetectorSpec
) -> torch.jit.ScriptModule:
    """The module, with the products of its `detect` in float16 or bfloat16 where that is the dtype.

    Raises ArtifactError if `detect` cannot be called, or what it returns is not float32 any more.
    """
    module = compile_module()
    if dtype in ("float16", "bfloat16"):
        methods = [name for name in ("forward", "detect", "detect_named") if hasattr(module, name)]
        reduce_products(module, methods, getattr(torch, dtype))
    canvas = torch.zeros(
        1, specification.channels, specification.height, specification.width, dtype=torch.uint8
    )
    try:
        with torchscript_call():
            faults = answer_faults(_answer(module, canvas, 0.0, 0.5), specification, 1)
    except (RuntimeError, ValueError) as error:  # an operator that does not take this dtype, for example
        reason = str(error).strip().splitlines()[-1]
        faults = [text for text in (reason, hint_for(reason, "")) if text]
    if faults:
        raise ArtifactError("\n  ".join([f"the detector cannot be exported in {dtype}:", *faults]))
    return module


def measured_precision(
    exact: torch.jit.ScriptModule,
    converted: torch.jit.ScriptModule,
    options: PrecisionOptions,
    specification: DetectorSpec,
    thresholds: tuple[float, float],
) -> Precision:
    """What the dtype changes on drawn pictures and those of the options, at these thresholds.

    exact, converted: on the CPU. On it, TF32 is imitated. Raises ArtifactError beyond the tolerance, or where
    scores move by more than a self-test allows or clear detections get lost.
    """
    pictures = measured_pictures(options, specification)
    canvases = (exact.preprocess([picture])[0].to(options.device) for picture in pictures)
    change = measure_change(
        _calling(exact, options.device, tf32=False),
        _calling(converted, options.device, tf32=options.dtype == "tf32"),
        canvases,
        thresholds,
        SCORE_LIMIT,
    )
    return described_precision(change, options, thresholds)


def measured_pictures(options: PrecisionOptions, specification: DetectorSpec) -> list[Tensor]:
    """Drawn ones, and those of the options; uint8 [C, H, W]."""
    height, width = specification.height, specification.width
    drawn = [draw_faces(seed) for seed in range(_DRAWN_PICTURES)]
    drawn += [draw_scene(seed, height, width) for seed in range(_DRAWN_PICTURES)]
    return [*drawn, *options.pictures]


def described_precision(
    change: PrecisionChange, options: PrecisionOptions, thresholds: tuple[float, float]
) -> Precision:
    """What the metadata say of a change. Raises ArtifactError as `measured_precision` does."""
    if change.detections == 0:
        raise ArtifactError(
            f"the change by {options.dtype} cannot be measured: nothing is found in {change.pictures} "
            f"pictures at a score threshold of {thresholds[0]:g}; give --pictures with something in them"
        )
    precision = Precision(
        dtype=options.dtype,  # type: ignore[arg-type]  # (one of DTYPES, and not float32)
        device=options.device.type,
        pictures=change.pictures,
        detections=change.detections,
        median_box_change=change.median_boxes,
        max_box_change=change.max_boxes,
        max_score_change=change.scores,
    )
    if not change.max_boxes <= options.tolerance or not change.scores <= SCORE_LIMIT or change.unmatched:
        raise ArtifactError(
            f"the detector cannot be exported: {describe_change(precision)}, and {change.unmatched} more "
            f"have no counterpart; at most {options.tolerance:g} px (--tolerance), {SCORE_LIMIT:g} and 0 "
            "are allowed"
        )
    return precision


def describe_change(precision: Precision) -> str:
    """What a precision changes, as one sentence without its full stop."""
    return (
        f"{precision.dtype} moves boxes by up to {precision.max_box_change:.3g} px of the canvas (median "
        f"{precision.median_box_change:.2g}) and scores by up to {precision.max_score_change:.2g}, over "
        f"{precision.detections} detections in {precision.pictures} pictures on {precision.device}"
    )


def _answer(
    module: Any, canvas: Tensor, score_threshold: float, iou_threshold: float
) -> Mapping[str, Tensor]:
    method = module.detect_named if hasattr(module, "detect_named") else module.detect
    return named(method(canvas, score_threshold, iou_threshold))


def _calling(module: torch.jit.ScriptModule, device: torch.device, tf32: bool) -> Detect:
    """The module's detections on a device, with or without TF32."""
    module = _on(module, device)

    def detect(canvas: Tensor, score_threshold: float, iou_threshold: float) -> Mapping[str, Tensor]:
        imitation = OperandRounding() if tf32 and device.type == "cpu" else contextlib.nullcontext()
        with torchscript_call(), tf32_switch(tf32), imitation:
            return _answer(module, canvas, score_threshold, iou_threshold)

    return detect


def _on(module: torch.jit.ScriptModule, device: torch.device) -> torch.jit.ScriptModule:
    """A copy on the device: the constants of a frozen module move only when it is loaded."""
    content = io.BytesIO()
    with quiet_torchscript():
        torch.jit.save(module, content)
        content.seek(0)
        copy = torch.jit.load(content, map_location=device)
    assert isinstance(copy, torch.jit.ScriptModule)
    return copy
