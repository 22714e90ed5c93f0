"""The precision of float32 convolutions and matrix products on GPUs, set once in a process."""

import threading

import torch

from lensbox.common.errors import ArtifactError

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
                f"{artifact} needs {_mode(tf32)} on GPUs, but {name} set this process to {_mode(earlier)}: "
                "use a process for each"
            )
        # These switches set torch's newer interface, `fp32_precision`, too.
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = tf32


def _mode(tf32: bool) -> str:
    return "TF32" if tf32 else "full float32"
