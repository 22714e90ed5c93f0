"""What the routes may know of a model, wherever it runs."""

from dataclasses import dataclass
from typing import Protocol

import torch

from lensbox.artifact.metadata import ArtifactMetadata, Orientation, Reading


class Model(Protocol):
    """An `Artifact`, or the description of one in another process."""

    @property
    def metadata(self) -> ArtifactMetadata: ...

    @property
    def device(self) -> torch.device: ...

    def reading(self, orientation: Orientation | None = None) -> Reading: ...


@dataclass(frozen=True)
class DescribedModel:
    """A model in another process. device: the one that it runs on there."""

    metadata: ArtifactMetadata
    device: torch.device

    def reading(self, orientation: Orientation | None = None) -> Reading:
        """As `Artifact.reading`."""
        return self.metadata.reading.with_orientation(orientation)
