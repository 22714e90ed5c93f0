"""Loading an artifact: a TorchScript file with the extra file `lensbox.json`, an ONNX file, a package of
compiled code, or an exported program.

A TorchScript artifact's module is a frozen detector with the methods `preprocess`, `detect`, `restore` and
`loss`; `lensbox.json` is written and read by `ArtifactMetadata`. `docs/artifact.md` says what is checked
before torch sees a file; no other code opens one. ONNX files are the business of `onnx_loading`, packages
that of `aoti_loading`, exported programs that of `program_loading`.
"""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import torch

from lensbox.artifact.archive import MAX_FILE_SIZE, looks_like_onnx, read_entries
from lensbox.artifact.metadata import METADATA_FILE, ArtifactMetadata
from lensbox.artifact.signature import require_signature
from lensbox.common.errors import ArtifactError, system_reason
from lensbox.runtime.aoti_file import is_package
from lensbox.runtime.aoti_loading import load_package, read_package_metadata
from lensbox.runtime.artifact import Artifact
from lensbox.runtime.artifact_file import ArtifactFile, parse_artifact_file
from lensbox.runtime.carried_ops import load_carried_libraries
from lensbox.runtime.device import choose_device, named_device
from lensbox.runtime.onnx_loading import load_onnx_bytes, read_onnx_metadata
from lensbox.runtime.onnx_options import OnnxOptions
from lensbox.runtime.op_library import require_ops
from lensbox.runtime.program_file import is_program
from lensbox.runtime.program_loading import load_program, read_program_metadata
from lensbox.runtime.torchscript import quiet_torchscript

FileKind = Literal["torchscript", "aoti", "onnx", "program"]  # by the names of `lensbox export --format`

METHODS = ("preprocess", "detect", "restore", "loss")


def load_artifact(
    path: str | Path,
    device: str | torch.device = "cpu",
    *,
    trusted: bool = False,
    public_key: str | Path | None = None,
    onnx: OnnxOptions | None = None,
) -> Artifact:
    """Loads an artifact onto a device: "cpu", "cuda", "cuda:1" or "auto".

    Run its `self_test` before relying on it on a new machine.

    A TorchScript artifact is a program: it loads as `python file.py` runs, with all rights of the process.
    `trusted` opens the op libraries that the artifact carries.

    public_key: a PEM file with an Ed25519 public key. Then the file must be signed by its owner, in PATH.sig
    (`lensbox sign`), and nothing of it is looked at before that is known; what loads are the bytes that were
    signed. Needs the package cryptography (`lensbox[sign]`).

    A file that `lensbox export --format onnx` wrote is loaded as well, on the CPU. It holds operators of ONNX
    alone, so there is no code to check, nor to trust. onnx: what runs it, None for onnxruntime with as many
    threads as torch uses. One of `--format aoti` is machine code, which is loaded only if `trusted`, onto the
    kind of device, of processor or GPU, and by the torch that it was compiled for. One of `--format program`
    is a graph of torch.export, whose reader is none for files of strangers: it, too, is loaded only if
    `trusted`, and on the CPU.

    Raises ArtifactError, naming the file and the cause, if it is missing, damaged, not an artifact or of a
    newer format, if its code uses other operators, and if an operator that it needs is not registered or has
    a schema that does not fit; with `public_key`, also if the signature is absent or does not match.
    DeviceError for a device that is not there, and for a file that is not for that kind of device.
    """
    data = read_file(path)
    if public_key is not None:
        require_signature(Path(path), data, Path(public_key))
    return load_artifact_bytes(data, str(path), device, trusted=trusted, onnx=onnx)


def read_file(path: str | Path) -> bytes:
    """The content of an artifact's file. Raises ArtifactError where there is none, or too large a one."""
    path = Path(path)
    if not path.is_file():
        raise ArtifactError(f"path must be an artifact file, got {path}")
    try:
        size = path.stat().st_size
        if size > MAX_FILE_SIZE:
            raise ArtifactError(f"{path} must have at most {MAX_FILE_SIZE} bytes, got {size}")
        return path.read_bytes()
    except OSError as error:
        raise ArtifactError(f"{path} cannot be read: {system_reason(error)}") from error


def read_metadata(data: bytes, name: str) -> ArtifactMetadata:
    """The metadata of an artifact, whatever its format, without running its code; errors call it `name`.

    Raises ArtifactError for what `load_artifact` refuses before it looks at code and operators.
    """
    if looks_like_onnx(data):
        return read_onnx_metadata(data, name)
    entries = _entries(data, name)
    return _metadata_of(_kind_of(entries), entries, name)


def kind_of_file(data: bytes) -> FileKind:
    """What a file is that `read_metadata` reads, by its content."""
    if looks_like_onnx(data):
        return "onnx"
    return _kind_of(read_entries(data))


def device_of_file(path: str | Path) -> str | None:
    """The kind of device that a file is for, "cpu" or "cuda"; None for any, and for what is no artifact."""
    try:
        data = read_file(path)
        if looks_like_onnx(data):
            return "cpu"
        entries = _entries(data, str(path))
        kind = _kind_of(entries)
        compiled = _metadata_of(kind, entries, str(path)).compiled
    except ArtifactError:
        return None
    return "cpu" if kind == "program" else None if compiled is None else compiled.device


def load_artifact_bytes(
    data: bytes,
    name: str,
    device: str | torch.device = "cpu",
    *,
    trusted: bool = False,
    onnx: OnnxOptions | None = None,
) -> Artifact:
    """Loads an artifact from the content of its file, as `load_artifact` does; errors call it `name`."""
    if looks_like_onnx(data):
        return load_onnx_bytes(data, name, named_device(str(device)), onnx or OnnxOptions())
    entries = _entries(data, name)
    kind = _kind_of(entries)
    if kind == "program":
        return load_program(data, entries, name, str(device), trusted)
    if kind == "aoti":
        return load_package(data, entries, name, str(device), trusted)
    device = choose_device(str(device))
    file, metadata = _parsed(entries, name)
    # Before TorchScript sees the file: it would only say "Unknown builtin op".
    if trusted:
        load_carried_libraries(name, metadata.libraries, file.libraries, metadata.ops)
    _require_ops(name, metadata, trusted)
    module = _load_module(data, name, device)
    missing = [method for method in _methods_of(metadata) if not hasattr(module, method)]
    if missing:
        raise ArtifactError(f"{name} lacks the methods {', '.join(missing)}")
    return Artifact(module, metadata, device)


def _entries(data: bytes, name: str) -> dict[str, bytes]:
    try:
        return read_entries(data)
    except ValueError as error:
        raise ArtifactError(f"{name} {error}") from error


def _kind_of(entries: Mapping[str, bytes]) -> FileKind:
    """Of an archive. A program is asked for first: it looks like a package, too."""
    return "program" if is_program(entries) else "aoti" if is_package(entries) else "torchscript"


def _metadata_of(kind: FileKind, entries: dict[str, bytes], name: str) -> ArtifactMetadata:
    """Raises ArtifactError."""
    if kind == "program":
        return read_program_metadata(entries, name)
    return read_package_metadata(entries, name) if kind == "aoti" else _parsed(entries, name)[1]


def _parsed(entries: dict[str, bytes], name: str) -> tuple[ArtifactFile, ArtifactMetadata]:
    try:
        file = parse_artifact_file(entries)
    except ValueError as error:
        raise ArtifactError(f"{name} {error}") from error
    try:
        return file, ArtifactMetadata.from_json(file.metadata)
    except ValueError as error:
        raise ArtifactError(f"{name} has an unusable {METADATA_FILE}: {error}") from error


def _require_ops(name: str, metadata: ArtifactMetadata, trusted: bool) -> None:
    try:
        require_ops(name, metadata.ops)
    except ArtifactError as error:
        if trusted or not metadata.libraries:
            raise
        carried = ", ".join(library.name for library in metadata.libraries)
        raise ArtifactError(
            f"{error}. The artifact carries {carried}, which is opened only if you load it as trusted "
            "(trusted=True, --trusted)"
        ) from error


def _methods_of(metadata: ArtifactMetadata) -> list[str]:
    """Those that a detector with such outputs must have."""
    further = ["detect_named"] if metadata.classes or metadata.extras else []
    has_points = any(extra.kind == "points" for extra in metadata.extras.values())
    return [*METHODS, *further, *(["restore_points"] if has_points else [])]


def _load_module(data: bytes, name: str, device: torch.device) -> torch.jit.ScriptModule:
    try:
        with quiet_torchscript():
            module = torch.jit.load(io.BytesIO(data), map_location=device)
    except Exception as error:  # whatever the file's code raises, and torch's own errors, which are many
        raise ArtifactError(
            f"{name} cannot be loaded on {device} by torch {torch.__version__}: {error}"
        ) from error
    assert isinstance(module, torch.jit.ScriptModule)
    return module
