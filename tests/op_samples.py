"""Sample inputs of every op: the one table that the tests of all ops read. A new op gets a row, or more."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from box_reference import random_boxes
from torch import Tensor

import lensbox.ops  # noqa: F401 registers the ops

EPS = 1e-7
Arguments = tuple[Any, ...]  # what the op's schema asks for: tensors, numbers, lists of flags, None


@dataclass(frozen=True)
class Boxes:
    """What samples are made of, on one device: pred float32 [B, N, 4], target uint8 [B, N, 4], of which most
    slots are padding, and wide_target, the same boxes in float32 and none of them padding."""

    pred: Tensor
    target: Tensor
    wide_target: Tensor


def make_boxes(device: torch.device, images: int = 6, slots: int = 40) -> Boxes:
    target = random_boxes(images, slots, dtype=torch.uint8)
    wide_target = target.float()
    target[torch.rand(images, slots) > 0.2] = 0
    return Boxes(random_boxes(images, slots).to(device), target.to(device), wide_target.to(device))


@dataclass(frozen=True)
class Sample:
    """A call of an op.

    arguments: made without waiting for the device, so that a graph can hold it.
    trains: the positions of the arguments that get a gradient.
    sums: whether CPU and CUDA agree but for rounding, as they add up in another order; otherwise the output
        is the same to the bit.
    """

    name: str
    op: str
    arguments: Callable[[Boxes], Arguments]
    trains: tuple[int, ...] = field(default=())
    sums: bool = False

    @property
    def overload(self) -> torch._ops.OpOverload:
        overload: torch._ops.OpOverload = getattr(torch.ops.lensbox, self.op).default
        return overload

    def leaves(self, boxes: Boxes) -> list[Any]:
        """The arguments, those that train as leaves."""
        return [
            value.detach().clone().requires_grad_() if position in self.trains else value
            for position, value in enumerate(self.arguments(boxes))
        ]

    def run(self, boxes: Boxes) -> list[Tensor]:
        """The outputs, then the gradients of what trains."""
        arguments = self.leaves(boxes)
        outputs = as_list(self.overload(*arguments))
        if not self.trains:
            return outputs
        (output,) = outputs
        upstream = torch.ones_like(output) * 2.5
        leaves = [arguments[position] for position in self.trains]
        return [output.detach(), *torch.autograd.grad(output, leaves, upstream)]


def as_list(result: Tensor | tuple[Tensor, ...]) -> list[Tensor]:
    return [result] if isinstance(result, Tensor) else list(result)


def _weight(boxes: Boxes) -> Tensor:
    return boxes.pred[..., 0].floor() % 3


def _scalar(boxes: Boxes, value: float) -> Tensor:
    return torch.full((), value, device=boxes.pred.device)


def _packed(boxes: Boxes) -> tuple[Tensor, Tensor]:
    """Three targets an image, end to end, and their offsets."""
    images = boxes.pred.shape[0]
    offsets = torch.arange(images + 1, device=boxes.pred.device) * 3
    return boxes.wide_target[:, :3].reshape(-1, 4), offsets


def _scores(boxes: Boxes) -> Tensor:
    return boxes.pred[..., 1] / 240


def _kinds(boxes: Boxes) -> Tensor:
    return boxes.pred[..., 0].long() % 2


BOTH = [True, True]

SAMPLES = [
    Sample("giou", "giou", lambda b: (b.pred, b.wide_target, EPS), trains=(0, 1)),
    Sample("giou of integers", "giou", lambda b: (b.pred, b.target, EPS), trains=(0,)),
    Sample(
        "giou gradients",
        "_giou_backward",
        lambda b: (b.pred[..., 0], b.pred, b.wide_target, EPS, BOTH),
        sums=True,
    ),
    Sample("pairwise", "pairwise_giou", lambda b: (b.pred, b.wide_target[:, :7], EPS), trains=(0, 1)),
    Sample(
        "pairwise gradients",
        "_pairwise_giou_backward",
        lambda b: (b.pred[..., :3], b.pred, b.wide_target[:, :3], EPS, BOTH),
        sums=True,
    ),
    Sample("loss", "masked_giou_loss", lambda b: (b.pred, b.target, None, EPS), trains=(0,), sums=True),
    Sample(
        "loss of two sides",
        "masked_giou_loss",
        lambda b: (b.pred, b.wide_target, None, EPS),
        trains=(0, 1),
        sums=True,
    ),
    Sample(
        "weighted loss",
        "masked_giou_loss",
        lambda b: (b.pred, b.wide_target, _weight(b), EPS),
        trains=(0,),
        sums=True,
    ),
    Sample(
        "loss of trained weights",
        "masked_giou_loss",
        lambda b: (b.pred, b.wide_target, _weight(b), EPS),
        trains=(0, 1, 2),
        sums=True,
    ),
    Sample(
        "loss forward",
        "_masked_giou_loss_forward",
        lambda b: (b.pred, b.target, None, EPS),
        sums=True,
    ),
    Sample(
        "loss gradients",
        "_masked_giou_loss_backward",
        lambda b: (
            *(_scalar(b, 2.0), b.pred, b.wide_target, _weight(b), _scalar(b, 0.5), _scalar(b, 9.0), EPS),
            [True, True, True],
        ),
        sums=True,
    ),
    Sample(
        "jagged loss",
        "jagged_giou_loss",
        lambda b: (b.pred, *_packed(b), EPS),
        trains=(0, 1),
        sums=True,
    ),
    Sample(
        "jagged loss forward", "_jagged_giou_loss_forward", lambda b: (b.pred, *_packed(b), EPS), sums=True
    ),
    Sample(
        "jagged loss gradients",
        "_jagged_giou_loss_backward",
        lambda b: (_scalar(b, 2.0), b.pred, *_packed(b), _scalar(b, 9.0), EPS, BOTH),
        sums=True,
    ),
    Sample("nms", "padded_nms", lambda b: (b.pred, _scores(b), 0.3, 0.05, 300, 30, None)),
    Sample("nms with categories", "padded_nms", lambda b: (b.pred, _scores(b), 0.3, 0.05, 30, 20, _kinds(b))),
    Sample(
        "nms of many candidates",
        "padded_nms",
        lambda b: (b.pred.repeat(1, 40, 1), _scores(b).repeat(1, 40), 0.3, 0.05, 1600, 50, None),
    ),
]
