"""From settings to an artifact that has proven itself on this machine."""

from typing import TYPE_CHECKING

import torch

from lensbox.serve.settings import Settings

if TYPE_CHECKING:
    from lensbox.export.artifact import Artifact

# TorchScript profiles a graph in its first call and compiles it in the second; the third is like later ones.
_WARM_CALLS = 3
# Two sizes, so that plans which hold for any size are made, and not for one alone.
_WARM_SIZES = ((320, 240), (480, 640))  # height, width in pixels


class StartupError(RuntimeError):
    """The service cannot start; the message is for the person who started it."""


def load_model(settings: Settings) -> "Artifact":
    """Loads the artifact, runs its self-test and warms it up. Call it in the thread that will use it.

    On a GPU it also calls `use_full_float32`. Raises StartupError with a message that says what to do: no
    such device, op library not loadable, artifact missing or unreadable, self-test failed.
    """
    device = choose_device(settings.device)
    if device.type == "cuda":
        use_full_float32()
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)  # per thread, hence here
    try:
        # Imported here: it may load the op library, whose failure is to be one readable message.
        from lensbox.export.artifact import load_artifact

        artifact = load_artifact(settings.artifact, device)
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        raise StartupError(str(error)) from error
    report = artifact.self_test()
    if not report.passed:
        failures = "; ".join(report.failures)
        raise StartupError(f"{settings.artifact} failed its self-test on {device}: {failures}")
    warm_up(artifact)
    return artifact


def choose_device(name: str) -> torch.device:
    """The device of "cpu", "cuda" or "auto". Raises StartupError for "cuda" without a usable GPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        reason = (
            "this torch was built without CUDA"
            if torch.version.cuda is None
            else f"this torch was built for CUDA {torch.version.cuda}, but no usable GPU was found"
        )
        raise StartupError(f"device must be usable, got 'cuda' with torch {torch.__version__}: {reason}")
    return torch.device(name)


def use_full_float32() -> None:
    """Makes this process compute float32 convolutions and matrix products on GPUs without TF32.

    Tensor cores would round what they multiply to TF32: where two boxes nearly tie, NMS could then keep
    another one than on the CPU.
    """
    # The older of torch's two interfaces: after `fp32_precision`, the newer, reading the older one raises.
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False


def warm_up(artifact: "Artifact") -> None:
    """Calls the artifact as requests will, until its first, slow calls are over."""
    boxes = torch.tensor([[8.0, 8.0, 24.0, 24.0]])
    for _ in range(_WARM_CALLS):
        for height, width in _WARM_SIZES:
            for channels in (1, 3, 4):
                artifact.detect_image(torch.zeros([channels, height, width], dtype=torch.uint8))
        artifact.loss(boxes, boxes)
        artifact.loss(boxes[None], boxes[None])
