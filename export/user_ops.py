"""Op libraries of the user: loaded for the export, and carried by the artifact if asked."""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

import torch

from lensbox.artifact.metadata import Library
from lensbox.common.errors import ArtifactError
from lensbox.runtime.machine import this_platform

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}", re.ASCII)


def load_op_libraries(paths: Sequence[Path]) -> None:
    """Loads each, which registers its operators. Raises ArtifactError with the linker's reason."""
    for path in paths:
        if not path.is_file():
            raise ArtifactError(f"--ops must be a shared library, got {path}")
        try:
            torch.ops.load_library(path.resolve())
        except OSError as error:
            # torch 2.13 wraps the linker's message in one of its own that only names the path.
            raise ArtifactError(f"--ops {path} cannot be loaded: {error.__cause__ or error}") from error


def described_libraries(paths: Sequence[Path]) -> dict[Library, bytes]:
    """What an artifact carries: each library with its content. Raises ArtifactError, and OSError."""
    libraries = {}
    for path in paths:
        if not _NAME.fullmatch(path.name):
            raise ArtifactError(
                "a carried library must have a name of letters, digits, '_', '.', '+' and '-', "
                f"got {path.name!r}"
            )
        content = path.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        libraries[Library(path.name, digest, torch.__version__, this_platform())] = content
    if len({library.name for library in libraries}) < len(libraries):
        raise ArtifactError(f"carried libraries must have different names, got {', '.join(map(str, paths))}")
    return libraries
