"""Load an artifact, whatever its format. `lensbox.runtime.formats` has one module for each."""

import logging
from pathlib import Path

import torch

from lensbox.artifact.archive import open_file, read_file
from lensbox.artifact.signature import require_signature
from lensbox.runtime.artifact import Artifact

_logger = logging.getLogger(__name__)


def load_artifact(
    path: str | Path,
    device: str | torch.device = "cpu",
    *,
    public_key: str | Path | None = None,
) -> Artifact:
    """Load an artifact onto a device: "cpu", "cuda", "cuda:1", or "auto" for the one that suits the file.

    Run its `self_test` before relying on it on a new machine.

    A `.pt` or `.pt2` file is a program: it loads as `python file.py` runs, with all rights of the process.
    Load such files only from people whose programs you would run. An ONNX file is data: it may hold operators
    of the ONNX standard only, and no external data.

    public_key: a PEM file with an Ed25519 public key. The file must then be signed by the key's owner, in
    PATH.sig (`lensbox sign`); nothing of the file is parsed before. Only then are op libraries opened that
    the artifact carries. Needs the package cryptography (`lensbox[sign]`).

    An ONNX file runs on the CPU, in onnxruntime with as many threads as torch uses. A package of machine
    code runs on the kind of device and processor, and with the minor version of torch, that it was compiled
    for.

    Raises ArtifactError, with the name of the file, if it is missing, damaged, not an artifact, of another
    format version, not signed by the owner of `public_key`, or needs an operator that is not registered.
    Raises DeviceError for a device that is missing, or that the file is not for.
    """
    data = read_file(path)
    if public_key is not None:
        require_signature(Path(path), data, Path(public_key))
    artifact = load_artifact_bytes(data, str(path), device, verified=public_key is not None)
    if public_key is None:
        _logger.info("%s is unsigned: no public key was given", path)
    return artifact


def load_artifact_bytes(
    data: bytes,
    name: str,
    device: str | torch.device = "cpu",
    *,
    verified: bool = False,
) -> Artifact:
    """Load an artifact from the content of its file; errors call it `name`.

    verified: whether its signature was checked; only then are op libraries opened that it carries. Raises
    what `load_artifact` raises.
    """
    file = open_file(data, name)
    # Imported here, as these modules load the op library, whose errors the caller of this function reports.
    if file.kind == "onnx":
        from lensbox.runtime.formats.onnx import load_onnx

        return load_onnx(file, str(device))
    if file.kind == "aoti":
        from lensbox.runtime.formats.aoti import load_package

        return load_package(file, str(device))
    from lensbox.runtime.formats.torchscript import load_torchscript

    return load_torchscript(file, str(device), verified)
