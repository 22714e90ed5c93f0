"""What is timed: the detector in all its forms, one picture, and the yardstick."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from lensbox.export.artifact_writer import save_artifact
from lensbox.model import FaceDetector
from lensbox.runtime.artifact import Artifact
from lensbox.runtime.loading import load_artifact


@dataclass(frozen=True)
class Subject:
    """The detector and its input.

    detector: eager, on the CPU, in eval mode.
    artifact: what a user gets of it: written to a file and loaded back.
    canvas: uint8 [B, 1, 256, 256], copies of the picture of the artifact's self-test.
    score_threshold, iou_threshold: the self-test's, with which no rounding decides what is found.
    folder: for files of this run.
    threads: of the CPU.
    """

    detector: FaceDetector
    artifact: Artifact
    canvas: Tensor
    score_threshold: float
    iou_threshold: float
    folder: Path
    threads: int

    @property
    def onnx_file(self) -> Path:
        """Where the detector's ONNX file lies once a runtime has needed it."""
        return self.folder / "detector.onnx"

    @property
    def network_file(self) -> Path:
        """Where the exported network lies once a runtime has needed it."""
        return self.folder / "network.onnx"


def make_subject(detector: FaceDetector, folder: Path, threads: int, batch: int = 1) -> Subject:
    """Exports the detector to `folder`, for so many canvases a call. Raises ArtifactError if it cannot."""
    save_artifact(detector, folder / "detector.pt")
    artifact = load_artifact(folder / "detector.pt")
    test = artifact.metadata.self_test
    with torch.inference_mode():
        canvases, _ = artifact.module.preprocess([test.image])
    canvas = canvases.repeat(batch, 1, 1, 1)
    return Subject(detector, artifact, canvas, test.score_threshold, test.iou_threshold, folder, threads)
