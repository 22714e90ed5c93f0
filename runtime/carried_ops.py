"""Op libraries that an artifact carries: machine code, opened only for those who trust the file."""

import hashlib
import platform
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from lensbox.artifact.metadata import Library
from lensbox.common.errors import ArtifactError
from lensbox.runtime.op_library import op_name, registered_schemas

_opening = threading.Lock()
_opened: set[str] = set()  # hashes; to register an operator twice ends the process


def this_platform() -> str:
    """System and processor, such as 'linux-x86_64'."""
    return f"{platform.system()}-{platform.machine()}".lower()


def load_carried_libraries(
    artifact: str, libraries: Sequence[Library], contents: Mapping[str, bytes], needed: Sequence[str]
) -> None:
    """Opens the libraries, unless the process has all operators already.

    contents: by name. needed: the schemas of the artifact's operators. Raises ArtifactError, naming the
    artifact, if one is missing, has another hash than it should, was built for another platform or torch, is
    refused by the linker, or would register operators that the process has.
    """
    # Here and not above, so that whoever imports the runtime can report a library that does not load.
    import lensbox.ops  # noqa: F401 (registers its operators)

    with _opening:
        _refuse_half_registered(artifact, libraries, needed)
        for library in libraries:
            content = _checked(artifact, library, contents)
            if library.sha256 in _opened or all(registered_schemas(op_name(schema)) for schema in needed):
                continue
            _open(artifact, library, content)
            _opened.add(library.sha256)


def _refuse_half_registered(artifact: str, libraries: Sequence[Library], needed: Sequence[str]) -> None:
    """Another library of the same operators, such as an earlier version, must not be followed by this one."""
    names = sorted({name for name in map(op_name, needed) if not name.startswith("lensbox::")})
    there = [name for name in names if registered_schemas(name)]
    if 0 < len(there) < len(names) and not any(library.sha256 in _opened for library in libraries):
        missing = [name for name in names if name not in there]
        raise ArtifactError(
            f"{artifact} carries {', '.join(library.name for library in libraries)}, but another library has "
            f"registered {', '.join(there)} in this process, without {', '.join(missing)}: load the artifact "
            "in a process of its own"
        )


def _checked(artifact: str, library: Library, contents: Mapping[str, bytes]) -> bytes:
    carried = f"{artifact} carries {library.name}"
    content = contents.get(library.name)
    if content is None:
        raise ArtifactError(f"{carried}, but holds no entry extra/ops/{library.name}")
    found = hashlib.sha256(content).hexdigest()
    if found != library.sha256:
        raise ArtifactError(f"{carried} with SHA-256 {library.sha256}, but its bytes have {found}")
    if library.platform != this_platform():
        raise ArtifactError(f"{carried}, built for {library.platform}; this machine is {this_platform()}")
    if minor_version(library.torch_version) != minor_version(torch.__version__):
        raise ArtifactError(
            f"{carried}, built for torch {library.torch_version}; installed is {torch.__version__}, and C++ "
            "interfaces change between minor versions"
        )
    return content


def _open(artifact: str, library: Library, content: bytes) -> None:
    # In a folder that no one else can write; the linker needs the file no longer than while it opens it.
    with tempfile.TemporaryDirectory(prefix="lensbox-") as folder:
        path = Path(folder) / library.name
        path.write_bytes(content)
        try:
            torch.ops.load_library(path)
        except OSError as error:
            # torch 2.13 wraps the linker's message in one of its own that only names the path.
            raise ArtifactError(
                f"{artifact} carries {library.name}, which cannot be opened: {error.__cause__ or error}"
            ) from error


def minor_version(version: str) -> str:
    """'2.13' of '2.13.0+cpu'."""
    return ".".join(version.split(".")[:2])
