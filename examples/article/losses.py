"""Losses in PyTorch, in CUDA and in Triton: peers of `lensbox bench ops`, rows of `lensbox bench article`.

A loader takes the device and returns the loss. It raises UnavailableError where the loss cannot run. The rows
are ways from predictions and boxes to the loss: five of the article, two that it mentions, two of Lensbox.
"""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from fake_data import SLOTS
from torch import Tensor

from lensbox.bench.measure import UnavailableError, optional
from lensbox.ops import PackedTargets, jagged_giou_loss, masked_giou_loss

PaddedLoss = Callable[[Tensor, Tensor], Tensor]

ARTICLE_KERNEL = Path(__file__).with_name("article_kernel.cu")
# Torch looks for the CUDA runtime beside the nvcc on the PATH, in vain where that is a script elsewhere.
USUAL_CUDA_LIBRARIES = "/usr/local/cuda/lib64"


def giou(boxes1: Tensor, boxes2: Tensor, eps: float = 1e-7) -> Tensor:
    """Return the GIoU of xyxy boxes `[..., 4]`, as users write it: few operations on whole tensors."""
    (low1, high1), (low2, high2) = boxes1.split(2, -1), boxes2.split(2, -1)
    overlap = (torch.minimum(high1, high2) - torch.maximum(low1, low2)).clamp(min=0)
    hull = torch.maximum(high1, high2) - torch.minimum(low1, low2)
    sides = high1 - low1, high2 - low2, overlap, hull
    area1, area2, intersection, enclosing = (side[..., 0] * side[..., 1] for side in sides)
    union = area1 + area2 - intersection
    return intersection / union.clamp(min=eps) - (enclosing - union) / enclosing.clamp(min=eps)


def padded_loss(pred: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """Compute every slot of `[B, M, 4]`; mask the padding afterwards, or weight the slots by `[B, M]`."""
    losses = 1 - giou(pred.float(), target.float())
    if weight is not None:
        return (weight * losses).sum() / weight.sum().clamp(min=1)
    valid = target[..., 3] != 0
    return torch.where(valid, losses, 0.0).sum() / valid.sum().clamp(min=1)


def compiled(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Compile each shape for itself. torch.compile's own CUDA graphs are off: all are captured alike."""
    return torch.compile(function, dynamic=False, fullgraph=True)


def article_loss(device: torch.device, skip: bool = True) -> PaddedLoss:
    """Return the article's CUDA kernel, rewritten. skip: threads of padding compute nothing."""
    if device.type != "cuda":
        raise UnavailableError("a CUDA kernel")
    if reason := _build_article_kernel():
        raise UnavailableError(reason)

    def loss(pred: Tensor, target: Tensor) -> Tensor:
        losses, counts = torch.ops.lensbox_bench.article_sums(pred.float(), target.float(), skip)
        out: Tensor = losses.sum() / counts.sum().clamp(min=1)
        return out

    return loss


@cache
def _build_article_kernel() -> str:
    """Build and load torch.ops.lensbox_bench, with ninja, nvcc and a C++ compiler; torch's cache keeps it.

    Return why that failed, or "": a second attempt would fail as slowly.
    """
    from torch.utils import cpp_extension

    major, minor = torch.cuda.get_device_capability()
    # Ninja is often installed beside this Python.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    try:
        cpp_extension.load(
            name="lensbox_bench",
            sources=[str(ARTICLE_KERNEL)],
            extra_cuda_cflags=["-O3", f"-gencode=arch=compute_{major}{minor},code=sm_{major}{minor}"],
            extra_ldflags=[f"-L{USUAL_CUDA_LIBRARIES}"],
            with_cuda=True,
            is_python_module=False,
        )
    except (OSError, RuntimeError, ImportError) as error:
        lines = str(error).splitlines()
        telling = next((line for line in lines if "error:" in line or "cannot find" in line), lines[0])
        return f"the article's kernel could not be built: {telling.strip()}"
    return ""


def triton_loss(device: torch.device) -> PaddedLoss:
    """Return the fused masked loss in Triton."""
    if device.type != "cuda":
        raise UnavailableError("Triton compiles for GPUs")
    optional("triton")
    from triton_masked_loss import masked_loss

    return masked_loss


def concatenated_loss(pred: Tensor, boxes: list[Tensor]) -> Tensor:
    """Concatenate the predictions and targets of all samples. boxes: `[n, 4]` of each sample."""
    wanted = torch.cat(boxes).float()
    predicted = torch.cat([sample[: len(its)] for sample, its in zip(pred, boxes, strict=True)])
    return (1 - giou(predicted.float(), wanted)).sum() / max(len(wanted), 1)


def looped_loss(pred: Tensor, boxes: list[Tensor]) -> Tensor:
    """Add up one sample after another: the loop that the article starts from."""
    total = torch.zeros((), device=pred.device)
    count = 0
    for sample, wanted in zip(pred, boxes, strict=True):
        if len(wanted) == 0:
            continue
        total = total + (1 - giou(sample[: len(wanted)].float(), wanted.float())).sum()
        count += len(wanted)
    return total / max(count, 1)


Boxes = list[Tensor]  # [n, 4] of each sample
Loss = Callable[[Tensor, Any], Tensor]


@dataclass(frozen=True)
class Approach:
    """A way from predictions [B, SLOTS, 4] and the boxes of a batch to the loss.

    collate: makes the targets of the boxes, on the host. load: makes the loss for a device; raises
    UnavailableError where that cannot run. published: the article's milliseconds of its three phases.
    has_gradient: whether a training step can go on with the loss.
    """

    name: str
    collate: Callable[[Boxes], Any]
    load: Callable[[torch.device], Loss]
    published: tuple[float, ...] = ()
    has_gradient: bool = True


def pad(boxes: Boxes) -> Tensor:
    """Return [B, SLOTS, 4], with zeros after the boxes of a sample."""
    padded = torch.zeros(len(boxes), SLOTS, 4, dtype=boxes[0].dtype)
    for slots, of_sample in zip(padded, boxes, strict=True):
        slots[: len(of_sample)] = of_sample
    return padded


def move(targets: Any, device: torch.device) -> Any:
    """Copy targets to a device, asynchronously if they are pinned."""
    if isinstance(targets, list):
        return [each.to(device, non_blocking=True) for each in targets]
    return targets.to(device, non_blocking=True)


def packed_loss(pred: Tensor, packed: PackedTargets) -> Tensor:
    """Return `jagged_giou_loss` of targets that were never padded."""
    return jagged_giou_loss(pred, packed.values, packed.offsets)


APPROACHES = [
    Approach("per-sample loop", list, lambda _: looped_loss, (28.8, 119, 938)),
    Approach("concatenation", list, lambda _: concatenated_loss, (52.2, 119, 25.4)),
    Approach("padding", pad, lambda _: padded_loss, (5.71, 132, 1.84)),
    Approach(
        "article's kernel",
        pad,
        lambda device: article_loss(device, skip=False),
        (5.69, 133, 0.629),
        has_gradient=False,
    ),
    Approach("article's kernel, conditional", pad, article_loss, (5.70, 132, 0.623), has_gradient=False),
    Approach("Triton", pad, triton_loss),
    Approach("torch.compile of padding", pad, lambda _: compiled(padded_loss)),
    Approach("Lensbox, padded", pad, lambda _: masked_giou_loss),
    Approach("Lensbox, jagged", PackedTargets.pack, lambda _: packed_loss),
]
