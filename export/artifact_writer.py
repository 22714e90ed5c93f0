"""Writes artifacts: `lensbox.runtime` reads them and says what they are."""

import copy
import io
import logging
from pathlib import Path

import torch

import lensbox.ops
from lensbox.errors import ArtifactError, InputError
from lensbox.export.self_test_builder import build_self_test
from lensbox.export.torchscript import custom_op_schemas, script_and_freeze
from lensbox.files import atomic_write
from lensbox.model import FaceDetector, weights_sha256
from lensbox.model.config import CANVAS_SIZE
from lensbox.model.weights_file import non_finite_weights
from lensbox.runtime.artifact_file import METADATA_FILE
from lensbox.runtime.artifact_loading import METHODS, load_artifact_bytes
from lensbox.runtime.metadata import FORMAT_VERSION, ArtifactMetadata, Canvas, Reading
from lensbox.runtime.torchscript import quiet_torchscript

_logger = logging.getLogger(__name__)


def save_artifact(
    detector: FaceDetector,
    path: str | Path,
    score_threshold: float = 0.5,
    iou_threshold: float = 0.5,
) -> ArtifactMetadata:
    """Writes the artifact of a detector; the thresholds are the defaults it carries.

    Before the file is written it is loaded back and must pass its self-test, so an artifact appears whole and
    working or not at all. Raises ArtifactError, InputError for weights that are not finite, OSError if the
    file cannot be written, and ValueError for thresholds outside 0..1.
    """
    for name, value in (("score_threshold", score_threshold), ("iou_threshold", iou_threshold)):
        if not 0 <= value <= 1:
            raise ValueError(f"{name} must be between 0 and 1, got {value}")
    if (reason := non_finite_weights(detector)) is not None:
        raise InputError(f"the detector cannot be exported: {reason}")
    # Neither the caller's device nor its training mode may leak into the artifact, nor the reverse.
    detector = copy.deepcopy(detector).cpu().eval()
    _logger.info("scripting and freezing the detector")
    module = script_and_freeze(detector, METHODS)
    _logger.info("choosing a self-test")
    metadata = _describe(detector, module, score_threshold, iou_threshold)

    content = io.BytesIO()  # not a file: torch's writer ends the process when the disk is full
    with quiet_torchscript():
        torch.jit.save(module, content, _extra_files={METADATA_FILE: metadata.to_json()})
    _logger.info("loading the artifact back and running its self-test")
    report = load_artifact_bytes(content.getvalue(), str(path)).self_test()
    if not report.passed:
        raise ArtifactError(f"the exported detector fails its self-test: {'; '.join(report.failures)}")
    atomic_write(path, content.getvalue())
    return metadata


def _describe(
    detector: FaceDetector, module: torch.jit.ScriptModule, score_threshold: float, iou_threshold: float
) -> ArtifactMetadata:
    try:
        self_test = build_self_test(detector)
    except RuntimeError as error:
        raise ArtifactError(f"the detector cannot be exported: {error}") from error
    slots = detector.max_detections
    return ArtifactMetadata(
        format_version=FORMAT_VERSION,
        name="face_detector",
        lensbox_version=lensbox.ops.read_build_info(lensbox.ops.library_path()).version,
        torch_version=torch.__version__.split("+")[0],
        weights_sha256=weights_sha256(detector),
        input={
            "canvas": {"dtype": "uint8", "shape": ["B", 1, CANVAS_SIZE, CANVAS_SIZE]},
            "image": {"dtype": "uint8", "shape": ["C", "H", "W"], "channels": [1, 3, 4]},
        },
        output={
            "boxes": {"dtype": "float32", "shape": ["B", slots, 4], "unit": "canvas pixels, xyxy"},
            "scores": {"dtype": "float32", "shape": ["B", slots]},
            "counts": {"dtype": "int32", "shape": ["B"]},
        },
        canvas=Canvas(CANVAS_SIZE, CANVAS_SIZE),
        reading=Reading(),
        score_threshold=score_threshold,
        iou_threshold=iou_threshold,
        ops=tuple(custom_op_schemas(module, METHODS)),
        methods=METHODS,
        self_test=self_test,
    )
