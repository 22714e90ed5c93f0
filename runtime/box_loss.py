"""The loss of boxes of several images: weighted, per image, and with its gradient."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

# Boxes and their targets, [..., 4] each, to a scalar.
Loss = Callable[[Tensor, Tensor], Tensor]


class LossUnsupportedError(ValueError):
    """The detector's own loss takes no weights, or has no gradient."""


@dataclass(frozen=True)
class BoxPairs:
    """Predicted boxes, each with its target.

    predictions: floating-point [P, 4], xyxy, the boxes of all images one after another. targets: [P, 4]; a
    target whose y2 is 0 is padding. sizes: number of boxes of each image; None if there is no batch
    dimension. weights: [P], non-negative, 0 for padding; None if each target counts once.
    """

    predictions: Tensor
    targets: Tensor
    sizes: tuple[int, ...] | None = None
    weights: Tensor | None = None

    @property
    def is_ragged(self) -> bool:
        """Return whether images have different numbers of boxes."""
        return len(set(self.sizes or ())) > 1

    @property
    def padded_slots(self) -> int:
        """Return the number of boxes after padding each image to the largest one."""
        return len(self.sizes) * max(self.sizes, default=0) if self.sizes else len(self.predictions)

    def copied_to(self, device: torch.device) -> "BoxPairs":
        """Return a copy on a device. Autograd accepts only copies made outside of inference mode."""
        predictions, targets = (boxes.to(device, copy=True) for boxes in (self.predictions, self.targets))
        weights = None if self.weights is None else self.weights.to(device, copy=True)
        return BoxPairs(predictions, targets, self.sizes, weights)

    def images(self) -> list["BoxPairs"]:
        """Return the pairs of each image, or the pairs themselves if there is no batch dimension."""
        if self.sizes is None:
            return [self]
        sizes = list(self.sizes)
        parts = zip(self.predictions.split(sizes), self.targets.split(sizes), strict=True)
        weights = [None] * len(sizes) if self.weights is None else self.weights.split(sizes)
        return [BoxPairs(*boxes, None, weight) for boxes, weight in zip(parts, weights, strict=True)]


class Losses(NamedTuple):
    """The losses of BoxPairs; per_image and gradient are None unless requested.

    loss: of all boxes. per_image: loss of each image. gradient: d loss / d predictions, float64 [P, 4] on the
    CPU.
    """

    loss: float
    per_image: list[float] | None
    gradient: Tensor | None


def _giou_loss(predictions: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
    # Not imported from `lensbox.ops`, whose import loads the op library: a program that imports the runtime
    # must be able to report a library that does not load.
    loss: Tensor = torch.ops.lensbox.masked_giou_loss(predictions, targets, weights)
    return loss


def is_giou_loss(loss: Loss, device: torch.device) -> bool:
    """Return whether a loss equals `masked_giou_loss` to the bit for random boxes and padding."""
    generator = torch.Generator().manual_seed(0)
    corners = 400 * torch.rand(5, 6, 2, 2, generator=generator, device="cpu") - 50
    boxes = torch.cat([corners.amin(dim=2), corners.amax(dim=2)], dim=-1).to(device)
    targets = boxes + 7
    targets[:, -1] = 0
    try:
        return float(loss(boxes, targets)) == float(_giou_loss(boxes, targets))
    except (RuntimeError, ValueError):  # a loss for another kind of boxes
        return False


def losses(loss: Loss, is_giou: bool, pairs: BoxPairs, per_image: bool, gradient: bool) -> Losses:
    """Return the losses of `pairs`, tensors on the loss's device. Call it outside of inference mode.

    The function sets `requires_grad` of the predictions. is_giou: whether `loss` is `masked_giou_loss`; its
    weighted value is `sum(w * (1 - giou)) / max(sum(w), 1)`. Raise LossUnsupportedError for weights of
    another loss, and for the gradient of a loss without one.
    """
    if pairs.weights is not None and not is_giou:
        raise LossUnsupportedError(
            "weights must be left out: the detector has its own loss, which takes no weights"
        )

    def compute(part: BoxPairs) -> Tensor:
        if part.weights is not None:
            return _giou_loss(part.predictions, part.targets, part.weights)
        return loss(*_shaped(part, is_giou))

    alone = None
    with torch.no_grad():
        if per_image:
            alone = torch.stack([compute(image).double() for image in pairs.images()]).tolist()
    with torch.set_grad_enabled(gradient):
        pairs.predictions.requires_grad_(gradient)
        value = compute(pairs)
    return Losses(float(value.detach()), alone, _gradient(value, pairs.predictions) if gradient else None)


def _shaped(pairs: BoxPairs, is_giou: bool) -> tuple[Tensor, Tensor]:
    """Return predictions and targets in the shape of a detector's loss: [N, 4], or [B, M, 4] for images."""
    if pairs.sizes is None or (pairs.is_ragged and is_giou):
        # The GIoU loss is a mean over pairs, regardless of their images: it needs no padding.
        return pairs.predictions, pairs.targets
    if pairs.is_ragged:
        sizes = list(pairs.sizes)
        predictions, targets = (
            pad_sequence(list(boxes.split(sizes)), batch_first=True)
            for boxes in (pairs.predictions, pairs.targets)
        )
        return predictions, targets
    shape = (len(pairs.sizes), -1, 4) if len(pairs.predictions) else (len(pairs.sizes), 0, 4)
    return pairs.predictions.view(shape), pairs.targets.view(shape)


def _gradient(value: Tensor, predictions: Tensor) -> Tensor:
    if not value.requires_grad:
        raise LossUnsupportedError("gradient must be left out: the detector's own loss has no gradient")
    (gradient,) = torch.autograd.grad(value, predictions)
    return gradient.double().cpu()
