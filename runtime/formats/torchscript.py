"""TorchScript artifacts: the code of all methods of a detector."""

import io

import torch

from lensbox.common.errors import ArtifactError
from lensbox.runtime.detect.artifact import Artifact
from lensbox.runtime.device import choose_device
from lensbox.runtime.file.archive import ArtifactFile
from lensbox.runtime.file.metadata import METHODS
from lensbox.runtime.op_library import require_ops
from lensbox.runtime.torchscript import quiet_torchscript


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
    missing = [method for method in METHODS if not hasattr(module, method)]
    if missing:
        raise ArtifactError(f"{file.name} lacks the methods {', '.join(missing)}")
    return Artifact(module, metadata, device)
