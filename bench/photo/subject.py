"""What is timed: an artifact on a device."""

from dataclasses import dataclass
from pathlib import Path

import torch

from lensbox.artifact.metadata import Canvas
from lensbox.bench.photo.previous_code import PreviousCode
from lensbox.export.artifact_writer import save_artifact
from lensbox.model import FaceDetector
from lensbox.runtime.artifact import Artifact
from lensbox.runtime.loading import load_artifact


@dataclass(frozen=True)
class Subject:
    """artifact_file: where `artifact` was loaded from. threads: of the CPU."""

    artifact_file: Path
    artifact: Artifact
    canvas: Canvas
    previous: PreviousCode
    threads: int

    @property
    def device(self) -> torch.device:
        return self.artifact.device

    def another_artifact(self) -> Artifact:
        """The same once more, to be changed."""
        return load_artifact(self.artifact_file, self.device)


def make_subject(detector: FaceDetector, folder: Path, device: str, threads: int) -> Subject:
    """Exports the detector to `folder`. Raises ArtifactError if it cannot be exported."""
    file = folder / "detector.pt"
    save_artifact(detector, file)
    artifact = load_artifact(file, device)
    canvas = artifact.metadata.canvas
    return Subject(file, artifact, canvas, PreviousCode(artifact, canvas.width), threads)
