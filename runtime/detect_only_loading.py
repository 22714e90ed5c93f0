"""What the loaders of files that hold `detect` alone have in common."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lensbox.artifact.metadata import METADATA_FILE, ArtifactMetadata
from lensbox.common.errors import ArtifactError
from lensbox.runtime.artifact import Artifact

if TYPE_CHECKING:
    from lensbox.runtime.detect_only_methods import Run


def read_stored(text: str | bytes, name: str) -> ArtifactMetadata:
    """Return the metadata in a text; errors call the file `name`. Raises ArtifactError."""
    try:
        return ArtifactMetadata.from_json(text)
    except ValueError as error:
        raise ArtifactError(f"{name} has an unusable {METADATA_FILE}: {error}") from error


def detect_only_artifact(
    run: "Run", metadata: ArtifactMetadata, device: torch.device, *, rounded: bool = False
) -> Artifact:
    """The artifact whose `detect` is `run`. rounded: as for `Artifact`."""
    # Here and not above, so that whoever imports the runtime can report an op library that does not load.
    from lensbox.runtime.detect_only_methods import DetectOnlyMethods

    methods = DetectOnlyMethods(run, metadata.canvas, device, "loss" in metadata.methods)
    return Artifact(methods, metadata, device, rounded=rounded)


def by_name(found: Sequence[Tensor], outputs: Sequence[str]) -> Mapping[str, Tensor]:
    """What `detect` gave, in the order of the metadata's `outputs`. Raises ArtifactError for another number
    of tensors."""
    if len(found) != len(outputs):
        raise ArtifactError(f"detect must give {', '.join(outputs)}, got {len(found)} tensors")
    return dict(zip(outputs, found, strict=True))
