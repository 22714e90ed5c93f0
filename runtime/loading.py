"""Load an artifact of any format. `lensbox.runtime.formats` has one module per format."""

import functools
import importlib
import logging
from collections.abc import Sequence
from pathlib import Path

import torch

from lensbox.runtime.detect.artifact import Artifact
from lensbox.runtime.device import set_gpu_float32
from lensbox.runtime.file.archive import open_file, read_file
from lensbox.runtime.file.seal import check_signature, read_signature
from lensbox.runtime.op_library import load_op_libraries

_logger = logging.getLogger(__name__)


def load_artifact(
    path: str | Path,
    device: str | torch.device = "cpu",
    *,
    public_key: str | Path | None = None,
    ops: Sequence[str | Path] = (),
) -> Artifact:
    """Load an artifact onto a device: "cpu", "cuda", "cuda:1", or "auto" for the device that suits the file.

    Run its `self_test` before relying on it on a new machine.

    TorchScript files and AOTInductor packages are code: loading one runs it, with all rights of the process.
    ONNX files and exported programs are data. The content of a file decides, not its name. Load code only
    from people whose programs you would run.

    public_key: a PEM file with an Ed25519 public key. The key's owner must have signed the file, in PATH.sig
    (`lensbox sign`); the signature is checked before the file is parsed. Needs the package
    cryptography (`lensbox[sign]`).

    ops: shared libraries with operators of the detector, loaded before the artifact. They are code that you
    trust; no signature covers them.

    An ONNX file runs on the CPU, in onnxruntime with as many threads as torch uses. A package of machine
    code needs the kind of device and processor, and the minor version of torch, for which it was compiled.
    On a GPU, loading sets torch's switches of TF32 for the whole process.

    Raise ArtifactError if the file is missing, damaged, not an artifact, of another format version, not
    signed by the owner of `public_key`, needs an operator that is not registered, if a library of `ops`
    cannot be loaded, or if, on a GPU, an earlier artifact of the process computes in TF32 and this one does
    not, or the other way round. Raise DeviceError for a device that is missing or does not suit the file.
    """
    data = read_file(path)
    if public_key is not None:
        check_signature(Path(path), data, read_signature(Path(path)), Path(public_key))
    load_op_libraries(ops)
    artifact = load_artifact_bytes(data, str(path), device)
    if public_key is None:
        _say_unsigned(str(path))
    return artifact


@functools.cache  # once for each file of a process
def _say_unsigned(path: str) -> None:
    _logger.info("%s is unsigned: no public key was given", path)


def load_artifact_bytes(data: bytes, name: str, device: str | torch.device = "cpu") -> Artifact:
    """Load an artifact from the content of its file. Raise what `load_artifact` raises.

    name: of the file, for messages.
    """
    file = open_file(data, name)
    # Imported here: these modules load the op library, and the caller of this function reports its errors.
    loader = importlib.import_module(f"lensbox.runtime.formats.{file.kind}")
    artifact: Artifact = loader.load(file, str(device))
    if artifact.device.type == "cuda":
        precision = file.metadata.precision
        set_gpu_float32(name, tf32=precision is not None and precision.dtype == "tf32")
    return artifact
