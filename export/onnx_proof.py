"""The proof that an ONNX file finds what the detector finds; without it, none is written."""

from collections.abc import Sequence

from torch import Tensor

from lensbox.common.errors import ArtifactError
from lensbox.export import detect_proof
from lensbox.export.detections_check import Agreement
from lensbox.export.onnx_exporter import OnnxExportError
from lensbox.model import Detector
from lensbox.runtime.artifact import Artifact


def prove(detector: Detector, artifact: Artifact, pictures: Sequence[Tensor]) -> Agreement:
    """As `detect_proof.prove`; raises OnnxExportError."""
    try:
        return detect_proof.prove(detector, artifact, pictures, "ONNX file")
    except ArtifactError as error:
        raise OnnxExportError(str(error)) from error
