"""The face detector's network as an ONNX file, for programs that suppress overlapping boxes themselves.

It holds `FaceDetector.forward` alone: a canvas goes in, raw boxes and logits come out. The format onnx has
the whole of `detect`.
"""

import onnx
import onnxruntime
import torch

import lensbox.ops
from lensbox.export.formats.onnx import OnnxExportError, to_onnx
from lensbox.export.verify.pictures import draw_faces
from lensbox.export.verify.tolerances import prediction_failures
from lensbox.model import FaceDetector, weights_sha256

OUTPUTS = ("boxes", "logits")

_CHECKED_IMAGES = 3  # not the example's number, so that the check needs the batch to be dynamic
_DESCRIPTION = (
    "Lensbox's face detector without pre- and post-processing. A box's score is sigmoid(logit). To come: "
    "a threshold on the scores, suppression of overlapping boxes, clipping to the canvas."
)


def onnx_network(detector: FaceDetector) -> bytes:
    """Return the network of a detector, on the CPU and in eval mode, as an ONNX file that describes itself.

    Input `images`, uint8 [batch, c, h, w] of the specification; outputs `boxes`, float32 [batch, A, 4], and
    `logits`, float32 [batch, A], as of `FaceDetector.forward`. onnxruntime runs the file and must agree with
    PyTorch. Raises OnnxExportError where it does not, ValueError for a detector in training mode.
    """
    if detector.training:
        raise ValueError("detector must be in eval mode, got one in training mode")
    canvases, _ = detector.preprocess([draw_faces(seed) for seed in range(_CHECKED_IMAGES)])
    model = to_onnx(detector, canvases[:2], OUTPUTS)
    _describe(model, detector)
    content: bytes = model.SerializeToString()
    _check(detector, canvases, content)
    return content


def _describe(model: onnx.ModelProto, detector: FaceDetector) -> None:
    model.graph.name = detector.specification.name
    model.doc_string = _DESCRIPTION
    texts = _value_descriptions(detector)
    for value in (*model.graph.input, *model.graph.output):
        value.doc_string = texts[value.name]
    properties = {
        "description": _DESCRIPTION,  # once more, as some viewers show only these
        "lensbox_version": lensbox.ops.read_build_info(lensbox.ops.library_path()).version,
        "torch_version": torch.__version__.split("+")[0],
        "weights_sha256": weights_sha256(detector),
    }
    onnx.helper.set_model_props(model, properties)


def _value_descriptions(detector: FaceDetector) -> dict[str, str]:
    specification, anchors = detector.specification, len(detector.anchor_strides)
    canvas = f"{specification.channels}, {specification.height}, {specification.width}"
    return {
        "images": f"uint8 [batch, {canvas}], gray levels of canvases as the artifact's preprocess makes them",
        "boxes": f"float32 [batch, {anchors}, 4], x1, y1, x2, y2 in pixels of the canvas, not clipped",
        "logits": f"float32 [batch, {anchors}], one for each box",
    }


def _check(detector: FaceDetector, canvases: torch.Tensor, content: bytes) -> None:
    onnx.checker.check_model(content, full_check=True)
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    boxes, logits = map(torch.from_numpy, session.run(list(OUTPUTS), {"images": canvases.numpy()}))
    with torch.no_grad():
        failures = prediction_failures((boxes, logits), detector(canvases))
    if failures:
        raise OnnxExportError(f"onnxruntime disagrees with PyTorch: {'; '.join(failures)}")
