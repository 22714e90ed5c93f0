"""`lensbox.json` of the files that hold `detect` alone, none of which is older than the second format."""

from lensbox.errors import ArtifactError
from lensbox.runtime.artifact_file import METADATA_FILE
from lensbox.runtime.metadata import SINGLE_IMAGE_FORMAT, ArtifactMetadata


def read_stored(text: str | bytes, name: str, kind: str) -> ArtifactMetadata:
    """The metadata in the text; errors call the file `name`, files like it `kind`. Raises ArtifactError."""
    try:
        metadata = ArtifactMetadata.from_json(text if isinstance(text, str) else text.decode())
        if metadata.format_version == SINGLE_IMAGE_FORMAT:
            raise ValueError(f"its format version is {SINGLE_IMAGE_FORMAT}, which {kind} never had")
    except ValueError as error:
        raise ArtifactError(f"{name} has an unusable {METADATA_FILE}: {error}") from error
    return metadata
