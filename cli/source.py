"""The detector behind `lensbox detect`: a service, an artifact, or by default the shipped detector."""

import os
import subprocess
import sys
from collections.abc import Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lensbox.common.errors import ArtifactError, LensboxError, OutputError
from lensbox.common.files import require_writable_folder
from lensbox.common.machine import has_torchscript, keep_freed_memory, package_version

if TYPE_CHECKING:
    from lensbox.client import Client
    from lensbox.runtime import Artifact

Answer = Mapping[str, Any]
"""The JSON of /v1/detect: width, height, detections; or `error` alone."""
Answers = Generator[Answer | LensboxError, None, None]


def ask_service(client: "Client", files: Sequence[Path], question: Mapping[str, Any]) -> Answers:
    """Yield the answer or the error for each file, in order. Raise ServiceError if it concerns all files.

    question: keyword arguments of `Client.detect_many`.
    """
    from lensbox.client import ServiceError  # late, as for `open_client`

    for found in client.detect_many(files, **question):
        if isinstance(found, ServiceError) and not found.is_of_one_image:
            raise found
        yield found if isinstance(found, LensboxError) else found.to_json()


def open_client(url: str, api_key: str | None, **options: Any) -> "Client":
    """Return a client of a service. options: of `Client`. Raise UsageError for an address that is none."""
    from lensbox.client import Client  # late: httpx may be missing where no service is asked

    try:
        return Client(url, api_key or None, **options)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def ask_artifact(
    artifact: "Artifact", files: Iterable[Path | bytes], question: Mapping[str, Any], batch: int | None = None
) -> Answers:
    """Yield the answer or the error for each file, in order. Threads read files ahead.

    question: keyword arguments of `Artifact.detect_files`. batch: None for the device's.
    """
    from lensbox.runtime.device import largest_batch

    if artifact.device.type == "cpu":
        keep_freed_memory()
    for found in artifact.detect_files(files, batch or largest_batch(artifact.device), **question):
        yield found if isinstance(found, LensboxError) else found.to_json(artifact.classes)


def open_artifact(
    path: Path | None, device: str, *, public_key: Path | None = None, ops: Sequence[Path] = ()
) -> "Artifact":
    """Load an artifact. Raise ArtifactError or DeviceError.

    path: None for the shipped detector, loaded from the cache without the log line about its signature.
    """
    # Imported here: torch takes seconds to import, and a client of a service does not need it.
    from lensbox.runtime.file.archive import read_file
    from lensbox.runtime.loading import load_artifact, load_artifact_bytes

    if path is None and public_key is None and not ops:
        path = shipped_artifact()
        return load_artifact_bytes(read_file(path), str(path), device)
    return load_artifact(path or shipped_artifact(), device, public_key=public_key, ops=ops)


def shipped_artifact() -> Path:
    """Return the artifact of the shipped detector in the user's cache; export it if it is not there.

    Another version of Lensbox or torch, other weights or another build of the op library is another file.
    Safe with concurrent calls: the file appears whole. Raise ArtifactError if the export fails, OutputError
    if the cache cannot be written.
    """
    from hashlib import sha256

    from lensbox.model.weights_file import SHIPPED_WEIGHTS
    from lensbox.ops import library_path

    content = sha256(SHIPPED_WEIGHTS.read_bytes() + library_path().read_bytes()).hexdigest()[:12]
    versions = f"{package_version('lensbox')}-torch-{package_version('torch')}"
    hint = "XDG_CACHE_HOME names another cache, --artifact a file"
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lensbox"
    except RuntimeError as error:  # a user without an entry in /etc/passwd, as in containers
        raise OutputError(f"the user must have a home, for the cache: {error} {hint}") from error
    path = folder / f"detector-{versions}-{content}{'.pt' if has_torchscript() else '.pt2'}"
    if path.is_file():
        return path
    try:
        require_writable_folder("the cache", folder)
    except OutputError as error:
        raise OutputError(f"{error}; {hint}") from error
    click.echo(f"exporting the shipped detector to {path}, once", err=True)
    # A separate process: exporting changes torch's global settings.
    command = [sys.executable, "-m", "lensbox.cli", "export", "--output", str(path)]
    if subprocess.run(command, stdout=subprocess.DEVNULL).returncode != 0:
        raise ArtifactError(f"the shipped detector cannot be exported to {path}; the reason is above")
    return path
