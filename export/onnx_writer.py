"""Writes the ONNX file of a detector: `lensbox.runtime` reads it, and so does whatever runs ONNX."""

import dataclasses
import logging
from collections.abc import Sequence
from pathlib import Path

import onnx
from torch import Tensor

from lensbox.artifact.metadata import METADATA_FILE, ArtifactMetadata
from lensbox.artifact.seal import sealed_onnx
from lensbox.common.files import atomic_write
from lensbox.export.artifact_writer import MadeArtifact, checked_for_export, describe
from lensbox.export.detect_graph import DetectGraph, example_canvases
from lensbox.export.detect_only import detect_only_metadata, methods_left_behind
from lensbox.export.onnx_exporter import OnnxExportError, UnsupportedByOnnxError, graph_to_onnx
from lensbox.export.onnx_nms import ThresholdsAsTensors
from lensbox.export.onnx_proof import prove
from lensbox.export.parity import Reference, compare_with_detector
from lensbox.export.proof_canvases import BATCHES
from lensbox.export.self_test_builder import one_thread
from lensbox.model import Detector
from lensbox.runtime.loading import load_artifact_bytes

_logger = logging.getLogger(__name__)

_MAX_BYTES = (1 << 31) - 1  # of a protocol buffer


def save_onnx(
    detector: Detector,
    path: str | Path,
    score_threshold: float | None = None,
    iou_threshold: float | None = None,
    pictures: Sequence[Tensor] = (),
) -> ArtifactMetadata:
    """Writes a detector's `detect`, in standard operators of ONNX, as a file that describes and tests itself.

    Inputs `images`, uint8 [batch, c, h, w], and `score_threshold` and `iou_threshold`, float32 []; the
    outputs are those of `detect`, by their names. The thresholds given here are the defaults that the
    metadata carry, None for the detector's. pictures: uint8 [C, H, W], on which the file has to prove itself,
    too.

    Before the file is written onnxruntime runs it, and must find what the detector finds, up to rounding (see
    `onnx_proof`). Raises what `save_artifact` raises, and OnnxExportError, which is an ArtifactError, for a
    detector that ONNX cannot express, whose file finds other things, or with a `preprocess` or `restore`
    unlike Lensbox's.
    """
    made = make_onnx(detector, str(path), score_threshold, iou_threshold, pictures)
    atomic_write(path, made.content)
    return made.metadata


def make_onnx(
    detector: Detector,
    name: str,
    score_threshold: float | None = None,
    iou_threshold: float | None = None,
    pictures: Sequence[Tensor] = (),
    described: ArtifactMetadata | None = None,
    reference: Reference | None = None,
) -> MadeArtifact:
    """The file that `save_onnx` writes; errors call it `name`.

    described: the metadata of another file of the detector in float32, where there is one: then both have the
    same self-test. reference: as for `make_artifact`.
    """
    detector, thresholds = checked_for_export(detector, score_threshold, iou_threshold)
    left_behind = methods_left_behind(detector, "an ONNX file", UnsupportedByOnnxError)
    _logger.info("making an ONNX model of the detector")
    model = _model(detector, thresholds)
    metadata = detect_only_metadata(described or describe(detector, thresholds), left_behind)
    _describe_model(model, metadata)
    if model.ByteSize() > _MAX_BYTES:
        raise OnnxExportError(f"an ONNX file has at most {_MAX_BYTES} bytes, this one has {model.ByteSize()}")
    content = sealed_onnx(model.SerializeToString())
    onnx.checker.check_model(content, full_check=True)
    _logger.info("comparing it with the detector")
    with one_thread():
        agreement = prove(detector, load_artifact_bytes(content, name), pictures)
    _logger.info("onnxruntime finds what PyTorch finds: %s", agreement.describe(BATCHES))
    if reference is not None:
        rows = compare_with_detector(content, name, metadata, reference, ["cpu"])
        metadata = dataclasses.replace(metadata, parity=rows)
        _describe_model(model, metadata)
        content = sealed_onnx(model.SerializeToString())
    return MadeArtifact(content, metadata)


def _model(detector: Detector, thresholds: tuple[float, float]) -> onnx.ModelProto:
    graph = DetectGraph(detector, ThresholdsAsTensors).eval()
    scalars = dict(zip(("score_threshold", "iou_threshold"), thresholds, strict=True))
    return graph_to_onnx(graph, example_canvases(detector.specification), scalars, graph.outputs)


def _describe_model(model: onnx.ModelProto, metadata: ArtifactMetadata) -> None:
    description = (
        f"{metadata.name}: detect of a Lensbox detector, with suppression of overlapping boxes. "
        f"{METADATA_FILE} among the properties says how images are fitted to canvases, and has the default "
        "thresholds."
    )
    model.graph.name = metadata.name
    model.doc_string = description
    texts = {"images": {**metadata.input["canvas"], "unit": "gray levels or RGB of canvases"}}
    texts |= {name: {"unit": "0 to 1"} for name in ("score_threshold", "iou_threshold")}
    texts |= metadata.output
    for value in (*model.graph.input, *model.graph.output):
        text = texts.get(value.name, {})
        value.doc_string = ", ".join(f"{key} {entry}" for key, entry in text.items())
    properties = {
        METADATA_FILE: metadata.to_json(),
        "description": description,  # once more, as some viewers show only these
        "lensbox_version": metadata.lensbox_version,
        "torch_version": metadata.torch_version,
        "weights_sha256": metadata.weights_sha256,
    }
    onnx.helper.set_model_props(model, properties)
