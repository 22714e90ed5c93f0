"""What is timed: the detector in all its forms, one picture, and the yardstick."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from lensbox.export.artifact_writer import save_artifact
from lensbox.model import FaceDetector
from lensbox.runtime.artifact import Artifact
from lensbox.runtime.artifact_loading import load_artifact


@dataclass(frozen=True)
class Subject:
    """The detector and its input.

    detector: eager, on the CPU, in eval mode.
    artifact: what a user gets of it: written to a file and loaded back.
    canvas: uint8 [1, 1, 256, 256], the picture of the artifact's self-test.
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
    def network_file(self) -> Path:
        """Where the exported network lies once a runtime has needed it."""
        return self.folder / "network.onnx"


def make_subject(detector: FaceDetector, folder: Path, threads: int) -> Subject:
    """Exports the detector to `folder`. Raises ArtifactError if it cannot be exported."""
    save_artifact(detector, folder / "detector.pt")
    artifact = load_artifact(folder / "detector.pt")
    test = artifact.metadata.self_test
    with torch.inference_mode():
        canvases, _ = artifact.module.preprocess([test.image])
    return Subject(
        detector, artifact, canvases.clone(), test.score_threshold, test.iou_threshold, folder, threads
    )
