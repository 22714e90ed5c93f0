"""The operators that an artifact calls, and the op libraries that it may carry."""

import hashlib
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from lensbox.artifact.metadata import Library
from lensbox.common.errors import ArtifactError
from lensbox.runtime.machine import minor_version, this_platform

_opening = threading.Lock()
_owners: dict[str, Library] = {}  # by operator: the carried library that registered it


def require_ops(artifact: str, needed: Sequence[str]) -> None:
    """Raise ArtifactError unless each schema of `needed` is registered. artifact: its name, for messages.

    A registered schema may have more arguments than the needed one, if they have defaults. Load the op
    library of `lensbox.ops`; raise OpLibraryError if it does not load.
    """
    # Imported here: a program that imports the runtime must be able to report a library that does not load.
    import lensbox.ops

    for schema in needed:
        registered = registered_schemas(op_name(schema))
        if not registered:
            raise ArtifactError(
                f"{artifact} needs the operator {schema}, which is not registered: load its library with "
                f"torch.ops.load_library before the artifact; {lensbox.ops.library_path()} is loaded"
            )
        try:
            fits = any(schema_accepts(candidate, schema) for candidate in registered)
        except Exception as error:  # torch's parser raises several types
            raise ArtifactError(
                f"{artifact} needs the operator {schema}, which torch cannot read: {error}"
            ) from error
        if not fits:
            raise ArtifactError(
                f"{artifact} needs the operator {schema}, but the loaded library has {registered[0]}: "
                "export the artifact again, or load the library it was made with"
            )


def op_name(schema: str) -> str:
    """Return the operator of a schema, without its overload: 'ns::op' of 'ns::op.out(Tensor x) -> Tensor'."""
    return schema.split("(")[0].split(".")[0]


def registered_schemas(op_name: str) -> "list[torch._C.FunctionSchema]":
    """Return the registered schemas of every overload of an operator such as 'lensbox::giou'."""
    return list(torch._C._jit_get_schemas_for_operator(op_name))


def schema_accepts(schema: "torch._C.FunctionSchema", wanted: str) -> bool:
    """Return whether a call for the schema `wanted` is valid for `schema`, which may have more defaults."""
    parsed = torch._C.parse_schema(wanted)
    return bool(schema.is_backward_compatible_with(parsed))  # type: ignore[attr-defined]  # (not in the stub)


def load_carried_libraries(
    artifact: str, libraries: Sequence[Library], contents: Mapping[str, bytes], needed: Sequence[str]
) -> None:
    """Open the libraries in an artifact, unless the process has all operators already.

    artifact: its name, for messages. contents: libraries by name. needed: schemas of the artifact's
    operators. Raise ArtifactError if a library is missing, has another hash, was built for another platform
    or torch, is rejected by the linker, or would register operators a second time.
    """
    import lensbox.ops  # noqa: F401 (late, as in `require_ops`; registers its operators)

    with _opening:
        _refuse_others(artifact, libraries, needed)
        for library in libraries:
            content = _checked(artifact, library, contents)
            missing = [name for name in map(op_name, needed) if not registered_schemas(name)]
            if library in _owners.values() or not missing:
                continue
            _open(artifact, library, content)
            _owners.update({name: library for name in missing if registered_schemas(name)})


def _refuse_others(artifact: str, libraries: Sequence[Library], needed: Sequence[str]) -> None:
    """Raise ArtifactError if another library has registered some of the operators already."""
    names = sorted({name for name in map(op_name, needed) if not name.startswith("lensbox::")})
    hashes = {library.sha256 for library in libraries}
    carried, alone = (
        ", ".join(library.name for library in libraries),
        "load the artifact in a process of its own",
    )
    for name in names:
        owner = _owners.get(name)
        if owner is not None and owner.sha256 not in hashes:
            raise ArtifactError(
                f"{artifact} carries {carried}, but another artifact's {owner.name}, with SHA-256 "
                f"{owner.sha256}, has registered {name} in this process: {alone}"
            )
    there = [name for name in names if registered_schemas(name)]
    if 0 < len(there) < len(names) and not hashes & {owner.sha256 for owner in _owners.values()}:
        missing = [name for name in names if name not in there]
        raise ArtifactError(
            f"{artifact} carries {carried}, but another library has registered {', '.join(there)} in this "
            f"process, without {', '.join(missing)}: {alone}"
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
    # A private folder; the linker needs the file only while it opens it.
    with tempfile.TemporaryDirectory(prefix="lensbox-") as folder:
        path = Path(folder) / library.name
        path.write_bytes(content)
        try:
            torch.ops.load_library(path)
        except OSError as error:
            # torch 2.13 wraps the linker's message in an error that only names the path.
            raise ArtifactError(
                f"{artifact} carries {library.name}, which cannot be opened: {error.__cause__ or error}"
            ) from error
