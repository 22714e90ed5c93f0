"""ONNX files: the model of `detect`, run by onnxruntime on the CPU."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from lensbox.artifact.archive import ArtifactFile
from lensbox.artifact.metadata import METADATA_FILE, ArtifactMetadata
from lensbox.common.errors import ArtifactError, DeviceError
from lensbox.runtime.artifact import Artifact
from lensbox.runtime.device import named_device
from lensbox.runtime.formats.detect_only import detect_only_artifact


def load_onnx(file: ArtifactFile, device_name: str) -> Artifact:
    """Load an ONNX file. device_name: "auto" for the CPU.

    Raise DeviceError for another device than the CPU, and ArtifactError if onnxruntime is not installed or
    rejects the model, or if inputs and outputs do not match the metadata.
    """
    device = named_device("cpu" if device_name == "auto" else device_name)
    if device.type != "cpu":
        raise DeviceError(f"device must be cpu for an ONNX file, got {device} for {file.name}")
    session = OnnxruntimeSession(file.data, file.name, torch.get_num_threads())
    _check_model(file.name, session, file.metadata)
    return detect_only_artifact(session.run, file.metadata, device)


class OnnxruntimeSession:
    """A model in onnxruntime. `run` is thread-safe; its callers share the session's thread pool.

    canvas: shape of the input `images`; a varying size is a string. outputs: names in the model's order.
    """

    def __init__(self, data: bytes, name: str, threads: int) -> None:
        """threads: number of CPU threads for one batch. name: of the file, for messages. Raise ArtifactError
        if onnxruntime is not installed or rejects the model."""
        try:
            import onnxruntime
        except ImportError as error:
            raise ArtifactError(
                f"{name} is an ONNX file, which needs onnxruntime: pip install 'lensbox[onnx]' ({error})"
            ) from error
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 4  # fatal errors only: warnings concern the export
        try:
            self._session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime's errors have no common base
            raise ArtifactError(
                f"{name} cannot be loaded by onnxruntime {onnxruntime.__version__}: {error}"
            ) from error
        self.canvas = {value.name: value.shape for value in self._session.get_inputs()}.get("images", [])
        self.outputs = [value.name for value in self._session.get_outputs()]

    def run(self, images: Tensor, score_threshold: float, iou_threshold: float) -> Mapping[str, Tensor]:
        """Return the outputs by name. images: uint8 [B, c, h, w], contiguous, on the CPU, with B >= 1."""
        feed = {
            "images": images.numpy(),
            "score_threshold": np.array(score_threshold, np.float32),
            "iou_threshold": np.array(iou_threshold, np.float32),
        }
        found = self._session.run(None, feed)
        return dict(zip(self.outputs, map(torch.from_numpy, found), strict=True))


def _check_model(name: str, session: OnnxruntimeSession, metadata: ArtifactMetadata) -> None:
    """Raise ArtifactError unless canvas and outputs match the metadata; onnxruntime checks the rest."""
    canvas = [metadata.canvas.channels, metadata.canvas.height, metadata.canvas.width]
    for what, found, wanted in (
        ("canvas", session.canvas[1:], canvas),
        ("outputs", session.outputs, list(metadata.outputs)),
    ):
        if found != wanted:
            raise ArtifactError(
                f"{name} does not fit its {METADATA_FILE}: the model must have the {what} {wanted}, "
                f"got {found}"
            )
