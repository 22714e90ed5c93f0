"""Loading an artifact's AOTInductor package: compiled `detect`, with `lensbox.json` beside it."""

from collections.abc import Mapping

from lensbox.artifact.metadata import METADATA_FILE, ArtifactMetadata
from lensbox.common.errors import ArtifactError
from lensbox.runtime.aoti_file import parse_package
from lensbox.runtime.aoti_model import AotiModel
from lensbox.runtime.artifact import Artifact
from lensbox.runtime.compiled import require_machine
from lensbox.runtime.detect_only_loading import detect_only_artifact, read_stored
from lensbox.runtime.device import named_device
from lensbox.runtime.op_library import require_ops


def load_package(
    data: bytes, entries: Mapping[str, bytes], name: str, device_name: str, trusted: bool
) -> Artifact:
    """Loads an artifact from the content of a package, and its entries; errors call it `name`.

    device_name: "auto" for the kind of device that it was compiled for. Raises ArtifactError if the package
    was not written by Lensbox, was compiled for another machine or torch, or is not trusted, and where an
    operator is missing; DeviceError for another kind of device than its own.
    """
    metadata = read_package_metadata(entries, name)
    if not trusted:
        raise ArtifactError(
            f"{name} holds machine code, which no check can judge and which runs with all your rights. If "
            "you would run any program of those who made the file, load it as trusted (trusted=True, "
            "--trusted)"
        )
    assert metadata.compiled is not None
    device = named_device(metadata.compiled.device if device_name == "auto" else device_name)
    require_machine(name, metadata.compiled, device)
    require_ops(name, metadata.ops)
    return detect_only_artifact(AotiModel(data, name, device, metadata.outputs).run, metadata, device)


def read_package_metadata(entries: Mapping[str, bytes], name: str) -> ArtifactMetadata:
    """The metadata of a package with these entries, whose code does not run. Raises ArtifactError."""
    try:
        text = parse_package(entries)
    except ValueError as error:
        raise ArtifactError(f"{name} {error}") from error
    metadata = read_stored(text, name)
    if metadata.compiled is None:
        raise ArtifactError(
            f"{name} has an unusable {METADATA_FILE}: there is no entry compiled, which says for what "
            "machine the code is"
        )
    return metadata
