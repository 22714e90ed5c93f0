"""The model of Triton's PyTorch backend: an artifact with the method `forward`, the one that it calls."""

import io
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from lensbox.export.artifact_writer import MadeArtifact, make_artifact
from lensbox.export.triton_repository.proof import prove_fixed
from lensbox.model import Detector
from lensbox.runtime.torchscript import quiet_torchscript, torchscript_call


def make_torchscript(
    detector: Detector, name: str, thresholds: tuple[float, float], pictures: Sequence[Tensor]
) -> MadeArtifact:
    """An artifact whose `forward` is `detect` at these thresholds.

    It takes `images` and returns a tuple of the outputs, in the order of `metadata.outputs`: the backend
    takes inputs by the names of arguments, and outputs whose names have no index in the order of
    `config.pbtxt`.
    Raises what `make_artifact` raises, and ArtifactError where `forward` finds other things than the
    detector.
    """
    made = make_artifact(detector, name, *thresholds, forward=_source(detector, thresholds))
    with quiet_torchscript():
        module = torch.jit.load(io.BytesIO(made.content))
    names = made.metadata.outputs

    def forward(images: Tensor) -> dict[str, Tensor]:
        with torchscript_call():
            return dict(zip(names, module(images), strict=True))

    prove_fixed(detector, forward, made.metadata, pictures, Path(name).name)
    return made


def _source(detector: Detector, thresholds: tuple[float, float]) -> str:
    specification = detector.specification
    labels = ["labels"] if specification.classes else []
    names = ("boxes", "scores", "counts", *labels, *specification.extras)
    outputs = ", ".join(f'found["{name}"]' for name in names)
    score, overlap = (repr(float(value)) for value in thresholds)
    return (
        "def forward(self, images: Tensor):\n"
        f"    found = self.detect_named(images, {score}, {overlap})\n"
        f"    return {outputs}\n"
    )
