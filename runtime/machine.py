"""This machine, and the machine that a package of machine code was compiled for."""

import platform
import re

import torch

from lensbox.common.errors import ArtifactError, DeviceError
from lensbox.common.machine import cpu_entry, minor_version
from lensbox.runtime.device import choose_device
from lensbox.runtime.file.metadata import Compiled

# The processor features, as Linux names them, that a compiler uses with `-march=native`: code that needs a
# missing one ends with an illegal instruction.
_INSTRUCTIONS = re.compile(
    r"s?sse.*|avx.*|amx.*|fma.*|f16c|bmi[12]|abm|popcnt|movbe|v?aes|v?pclmulqdq|gfni|sha.*|sm[34]|xop|tbm"
    r"|asimd.*|sve.*|sme(?!p$).*|fphp|atomics|crc32|pmull|i8mm|bf16|i?lrcpc|jscvt|fcma|flagm2?|frint",  # ARM
    re.ASCII,
)


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
