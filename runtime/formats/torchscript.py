"""TorchScript artifacts: the code of all methods of a detector."""

import io

import torch

from lensbox.common.errors import ArtifactError
from lensbox.runtime.detect.artifact import Artifact
from lensbox.runtime.device import choose_device
from lensbox.runtime.file.archive import ArtifactFile
from lensbox.runtime.file.metadata import ArtifactMetadata
from lensbox.runtime.op_library import require_ops
from lensbox.runtime.torchscript import quiet_torchscript

METHODS = ("preprocess", "detect", "restore", "loss")


def load(file: ArtifactFile, device_name: str) -> Artifact:
    """Load a TorchScript artifact; loading runs its code.

    Raise ArtifactError if an operator is missing or has another schema, if torch cannot load the file, or if
    a method is missing; DeviceError.
    """
    device, metadata = choose_device(device_name), file.metadata
    # Before TorchScript reads the file: its own error would only be "Unknown builtin op".
    require_ops(file.name, metadata.ops)
    try:
        with quiet_torchscript():
            module = torch.jit.load(io.BytesIO(file.data), map_location=device)
    except Exception as error:  # the file's code may raise any type
        raise ArtifactError(
            f"{file.name} cannot be loaded on {device} by torch {torch.__version__}: {error}"
        ) from error
    missing = [method for method in _methods_of(metadata) if not hasattr(module, method)]
    if missing:
        raise ArtifactError(f"{file.name} lacks the methods {', '.join(missing)}")
    return Artifact(module, metadata, device)


def _methods_of(metadata: ArtifactMetadata) -> list[str]:
    """Return the methods that a detector with these outputs must have."""
    further = ["detect_named"] if metadata.classes or metadata.extras else []
    has_points = any(extra.kind == "points" for extra in metadata.extras.values())
    return [*METHODS, *further, *(["restore_points"] if has_points else [])]
