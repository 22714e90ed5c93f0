"""The implementations of the loss: five of the article, two that it mentions, and two of Lensbox."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from lensbox.bench.ops import peers, pytorch_losses
from lensbox.ops import PackedTargets

COPY, FORWARD, LOSS, BACKWARD, OPTIMIZER = "copy data", "forward", "calc loss", "backward", "optimizer"
PHASES = (COPY, FORWARD, LOSS, BACKWARD, OPTIMIZER)
PUBLISHED_PHASES = (COPY, FORWARD, LOSS)
PUBLISHED_ON = "L4, torch 2.4"

SLOTS = 256  # boxes that the net predicts per sample, and the most that a sample may have

Targets = TypeVar("Targets")
Loss = Callable[[Tensor, Targets], Tensor]


@dataclass(frozen=True)
class Layout(Generic[Targets]):
    """Copy the boxes of all samples, `[n, 4]` each, to the device.

    collate: on the host, by the workers of a data loader; not timed. pin: to page-locked memory; not timed.
    move: to a device, asynchronously if pinned; a part of the phase "copy data".
    """

    collate: Callable[[Sequence[Tensor]], Targets]
    pin: Callable[[Targets], Targets]
    move: Callable[[Targets, torch.device], Targets]


@dataclass(frozen=True)
class Approach(Generic[Targets]):
    """A way from predictions `[B, SLOTS, 4]` and the boxes of a batch to the loss.

    load: makes the loss for a device; raises UnavailableError. published: the article's milliseconds by
    phase. no_backward: why it has no gradient, or "". slow_to_start: whether `--quick` leaves it out.
    """

    name: str
    layout: Layout[Targets]
    load: Callable[[torch.device], Loss[Targets]]
    published: Mapping[str, float] = field(default_factory=dict)
    no_backward: str = ""
    slow_to_start: bool = False


def _pad(boxes: Sequence[Tensor]) -> Tensor:
    """Return `[B, SLOTS, 4]`, with zeros after the boxes of a sample."""
    padded = torch.zeros(len(boxes), SLOTS, 4, dtype=boxes[0].dtype)
    for slots, of_sample in zip(padded, boxes, strict=True):
        slots[: len(of_sample)] = of_sample
    return padded


def _published(copy: float, forward: float, loss: float) -> dict[str, float]:
    return dict(zip(PUBLISHED_PHASES, (copy, forward, loss), strict=True))


_LISTED: Layout[list[Tensor]] = Layout(
    collate=list,
    pin=lambda boxes: [of_sample.pin_memory() for of_sample in boxes],
    move=lambda boxes, device: [of_sample.to(device, non_blocking=True) for of_sample in boxes],
)
_PADDED: Layout[Tensor] = Layout(
    collate=_pad,
    pin=torch.Tensor.pin_memory,
    move=lambda padded, device: padded.to(device, non_blocking=True),
)
_PACKED: Layout[PackedTargets] = Layout(
    collate=PackedTargets.pack,
    pin=PackedTargets.pin_memory,
    move=lambda packed, device: packed.to(device, non_blocking=True),
)

_FORWARD_ONLY = "forward only: it has no derivative"
LENSBOX = "Lensbox, padded"
OWN = (LENSBOX, "Lensbox, jagged")

APPROACHES: list[Approach[Any]] = [
    Approach("per-sample loop", _LISTED, lambda _: pytorch_losses.looped_loss, _published(28.8, 119, 938)),
    Approach(
        "concatenation", _LISTED, lambda _: pytorch_losses.concatenated_loss, _published(52.2, 119, 25.4)
    ),
    Approach("padding", _PADDED, lambda _: pytorch_losses.padded_loss, _published(5.71, 132, 1.84)),
    Approach(
        "article's kernel",
        _PADDED,
        lambda device: peers.article_loss(device, skip=False),
        _published(5.69, 133, 0.629),
        no_backward=_FORWARD_ONLY,
    ),
    Approach(
        "article's kernel, conditional",
        _PADDED,
        peers.article_loss,
        _published(5.70, 132, 0.623),
        no_backward=_FORWARD_ONLY,
    ),
    Approach("Triton", _PADDED, peers.triton_loss),
    Approach(
        "torch.compile of padding",
        _PADDED,
        lambda _: peers.compiled(pytorch_losses.padded_loss),
        slow_to_start=True,
    ),
    Approach(LENSBOX, _PADDED, peers.lensbox_padded_loss),
    Approach("Lensbox, jagged", _PACKED, peers.lensbox_packed_loss),
]
