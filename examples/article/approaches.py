"""Ways from predictions and boxes to the loss: five of the article, two that it mentions, two of Lensbox.

The padded loss in PyTorch and the ops of Lensbox are peers of `lensbox bench ops`, too.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import losses
import torch
from fake_data import SLOTS
from torch import Tensor

from lensbox.ops import PackedTargets, jagged_giou_loss, masked_giou_loss

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
    Approach("per-sample loop", list, lambda _: losses.looped_loss, (28.8, 119, 938)),
    Approach("concatenation", list, lambda _: losses.concatenated_loss, (52.2, 119, 25.4)),
    Approach("padding", pad, lambda _: losses.padded_loss, (5.71, 132, 1.84)),
    Approach(
        "article's kernel",
        pad,
        lambda device: losses.article_loss(device, skip=False),
        (5.69, 133, 0.629),
        has_gradient=False,
    ),
    Approach(
        "article's kernel, conditional", pad, losses.article_loss, (5.70, 132, 0.623), has_gradient=False
    ),
    Approach("Triton", pad, losses.triton_loss),
    Approach("torch.compile of padding", pad, lambda _: losses.compiled(losses.padded_loss)),
    Approach("Lensbox, padded", pad, lambda _: masked_giou_loss),
    Approach("Lensbox, jagged", PackedTargets.pack, lambda _: packed_loss),
]
