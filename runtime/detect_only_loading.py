"""What the loaders of files that hold `detect` alone have in common."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lensbox.common.errors import ArtifactError
from lensbox.runtime.artifact import Artifact
from lensbox.runtime.artifact_file import METADATA_FILE
from lensbox.runtime.metadata import SINGLE_IMAGE_FORMAT, ArtifactMetadata

if TYPE_CHECKING:
    from lensbox.runtime.detect_only_methods import Run


def read_stored(text: str | bytes, name: str, kind: str) -> ArtifactMetadata:
    """The metadata in the text; errors call the file `name`, files like it `kind`. Raises ArtifactError.

    None of these files is older than the second format.
    """
    try:
        metadata = ArtifactMetadata.from_json(text if isinstance(text, str) else text.decode())
        if metadata.format_version == SINGLE_IMAGE_FORMAT:
            raise ValueError(f"its format version is {SINGLE_IMAGE_FORMAT}, which {kind} never had")
    except ValueError as error:
        raise ArtifactError(f"{name} has an unusable {METADATA_FILE}: {error}") from error
    return metadata


def detect_only_artifact(
    run: "Run", metadata: ArtifactMetadata, device: torch.device, *, rounded: bool = False
) -> Artifact:
    """The artifact whose `detect` is `run`. rounded: as for `Artifact`."""
    # Here and not above, so that whoever imports the runtime can report an op library that does not load.
    from lensbox.runtime.detect_only_methods import DetectOnlyMethods

    assert metadata.canvas is not None  # since format 2
    methods = DetectOnlyMethods(run, metadata.canvas, device, "loss" in metadata.methods)
    return Artifact(methods, metadata, device, rounded=rounded)


def by_name(found: Sequence[Tensor], outputs: Sequence[str]) -> Mapping[str, Tensor]:
    """What `detect` gave, in the order of the metadata's `outputs`. Raises ArtifactError for another number
    of tensors."""
    if len(found) != len(outputs):
        raise ArtifactError(f"detect must give {', '.join(outputs)}, got {len(found)} tensors")
    return dict(zip(outputs, found, strict=True))
