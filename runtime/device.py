"""The device that an artifact runs on, its precision of float32, and the machine of a compiled package."""

import platform
import re
import threading

import torch

from lensbox.common.detections import check_device
from lensbox.common.errors import ArtifactError, DeviceError
from lensbox.common.machine import cpu_entry, minor_version
from lensbox.runtime.file.metadata import Compiled

# Shipped detector, two cores: batches of 8 took 1.9 ms per image, of 1 3.4 ms, of 32 (cache misses) 3.5 ms.
_LARGEST_ON_CPU = 8
LARGEST_ON_GPU = 64

_MODES = ("full float32", "TF32")
_setting = threading.Lock()
_first: tuple[str, bool] | None = None  # the first artifact on a GPU, and whether it computes in TF32

# The processor features, as Linux names them, that a compiler uses with `-march=native`: code that needs a
# missing one ends with an illegal instruction.
_INSTRUCTIONS = re.compile(
    r"s?sse.*|avx.*|amx.*|fma.*|f16c|bmi[12]|abm|popcnt|movbe|v?aes|v?pclmulqdq|gfni|sha.*|sm[34]|xop|tbm"
    r"|asimd.*|sve.*|sme(?!p$).*|fphp|atomics|crc32|pmull|i8mm|bf16|i?lrcpc|jscvt|fcma|flagm2?|frint",  # ARM
    re.ASCII,
)


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


def this_machine(device: torch.device) -> Compiled:
    """Return the machine for which this process compiles code."""
    return Compiled(
        "cuda" if device.type == "cuda" else "cpu",
        torch.__version__.split("+")[0],
        this_platform(),
        tuple(filter(_INSTRUCTIONS.fullmatch, this_cpu_features())),
        _gpu_architecture(device) if device.type == "cuda" else "",
    )


def this_cpu_features() -> list[str]:
    """Return the features of this processor as Linux names them, sorted; none on other systems."""
    return sorted(set(cpu_entry("flags|Features").split()))


def this_platform() -> str:
    """Return system and processor, such as 'linux-x86_64'."""
    return f"{platform.system()}-{platform.machine()}".lower()


def require_machine(name: str, compiled: Compiled, device: torch.device) -> None:
    """Raise ArtifactError if machine code was compiled for another torch, system, processor or GPU.

    name: of the file, for messages. Raise DeviceError if the code is for another kind of device.
    """
    made = f"{name} was compiled for"
    again = "export the detector again, on a machine like this one"
    if minor_version(compiled.torch_version) != minor_version(torch.__version__):
        raise ArtifactError(
            f"{made} torch {compiled.torch_version}; installed is {torch.__version__}, and C++ interfaces "
            f"change between minor versions: {again}"
        )
    if compiled.device != device.type:
        raise DeviceError(f"device must be {compiled.device}, for which {name} was compiled, got {device}")
    if compiled.platform != this_platform():
        raise ArtifactError(f"{made} {compiled.platform}; this machine is {this_platform()}: {again}")
    present = this_cpu_features()
    if lacking := [feature for feature in compiled.cpu_features if feature not in present]:
        raise ArtifactError(f"{made} a processor with {', '.join(lacking)}, which this one lacks: {again}")
    if compiled.device == "cuda" and _gpu_architecture(device) != compiled.gpu_architecture:
        raise ArtifactError(
            f"{made} a GPU of architecture {compiled.gpu_architecture}; {device} has "
            f"{_gpu_architecture(device)}: {again}"
        )


def _gpu_architecture(device: torch.device) -> str:
    major, minor = torch.cuda.get_device_capability(choose_device(str(device)))
    return f"sm_{major}{minor}"
