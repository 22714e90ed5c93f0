"""The device that an artifact runs on, the precision of float32 on GPUs, and a timer of the device's work."""

import threading

import torch

from lensbox.common.detect_options import check_device
from lensbox.common.errors import ArtifactError, DeviceError

# Shipped detector, two cores: batches of 8 took 1.9 ms per image, of 1 3.4 ms, of 32 (cache misses) 3.5 ms.
_LARGEST_ON_CPU = 8
LARGEST_ON_GPU = 64


def choose_device(name: str) -> torch.device:
    """Return the device of "cpu", "cuda", "cuda:1" or "auto".

    Raise DeviceError for another name, and for a GPU that cannot be used.
    """
    device = named_device(name)
    if device.type != "cuda":
        return device
    if not torch.cuda.is_available():
        build, cuda = f"{name!r} with torch {torch.__version__}: this torch was built", torch.version.cuda
        reason = "without CUDA" if cuda is None else f"for CUDA {cuda}, but no usable GPU was found"
        raise DeviceError(f"device must be usable, got {build} {reason}")
    if (device.index or 0) >= (found := torch.cuda.device_count()):
        raise DeviceError(f"device must be usable, got {name!r} where torch finds {found} of them")
    return device


def named_device(name: str) -> torch.device:
    """Return the device of a name as `choose_device` does, but do not check a GPU. Raise DeviceError."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        check_device(name)
    except ValueError as error:
        raise DeviceError(str(error)) from None
    return torch.device(name)


def largest_batch(device: torch.device) -> int:
    """Return how many images are computed together by default."""
    return _LARGEST_ON_CPU if device.type == "cpu" else LARGEST_ON_GPU


_MODES = ("full float32", "TF32")
_setting = threading.Lock()
_first: tuple[str, bool] | None = None  # the first artifact on a GPU, and whether it computes in TF32


def set_gpu_float32(artifact: str, tf32: bool) -> None:
    """Let this process compute in full float32 on GPUs, or in TF32 if the artifact was made for it.

    Tensor cores round factors to TF32; if two boxes nearly tie, NMS may then keep another box than on the
    CPU. torch's switches belong to the process, so all its artifacts must need the same precision. artifact:
    a name for messages. Raise ArtifactError if an earlier artifact needs the other precision.
    """
    global _first
    with _setting:
        if _first is None:
            _first = artifact, tf32
        name, earlier = _first
        if earlier != tf32:
            raise ArtifactError(
                f"{artifact} needs {_MODES[tf32]} on GPUs, but {name} set this process to {_MODES[earlier]}: "
                "use a process for each"
            )
        # These switches set torch's newer interface, `fp32_precision`, too.
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = tf32
