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
    """The loss of this detector takes no weights, or has no gradient."""


@dataclass(frozen=True)
class BoxPairs:
    """Predicted boxes, each with its target.

    predictions: floating-point [P, 4], xyxy, of all images end to end. targets: [P, 4]; a target whose y2 is
    0 is padding. sizes: the number of boxes of each image, at least 1; None if there is no batch dimension.
    weights: [P], non-negative, 0 for padding; None if each target counts once.
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
        """Return a copy on a device. Make it outside of inference mode if autograd is to take it."""
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
    """loss: of all boxes together. per_image, of each image alone, and gradient, d loss / d predictions in
    float64 [P, 4] on the CPU: None where they were not asked for."""

    loss: float
    per_image: list[float] | None
    gradient: Tensor | None


def _giou_loss(predictions: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
    # By way of torch, which has the operator since the artifact was loaded. Importing `lensbox.ops` loads its
    # library, and whoever imports the runtime is to be able to report one that does not load.
    loss: Tensor = torch.ops.lensbox.masked_giou_loss(predictions, targets, weights)
    return loss


def is_giou_loss(loss: Loss, device: torch.device) -> bool:
    """Return whether a loss equals `masked_giou_loss` to the bit for made-up boxes and padding."""
    generator = torch.Generator().manual_seed(0)
    corners = 400 * torch.rand(5, 6, 2, 2, generator=generator) - 50
    boxes = torch.cat([corners.amin(dim=2), corners.amax(dim=2)], dim=-1).to(device)
    targets = boxes + 7
    targets[:, -1] = 0
    try:
        return float(loss(boxes, targets)) == float(_giou_loss(boxes, targets))
    except (RuntimeError, ValueError):  # one that takes other boxes
        return False


def losses(loss: Loss, is_giou: bool, pairs: BoxPairs, per_image: bool, gradient: bool) -> Losses:
    """Return the losses of `pairs`, which are on the loss's device and may be changed.

    Call it outside of inference mode.

    is_giou: whether `loss` is `masked_giou_loss`. With weights it is `sum(w * (1 - giou)) / max(sum(w), 1)`;
    a loss of another kind takes none. Raises LossUnsupportedError for these, and for the gradient of a loss
    that has none.
    """
    if pairs.weights is not None and not is_giou:
        raise LossUnsupportedError(
            "weights must be left out: the detector has a loss of its own, without them"
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
    """Return predictions and targets as a detector's loss takes them: [N, 4], or [B, M, 4] of images."""
    if pairs.sizes is None or (pairs.is_ragged and is_giou):
        # The GIoU loss is a mean over pairs, whichever image they are of: padding would add nothing to it.
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
        raise LossUnsupportedError("gradient must be left out: the loss of this detector has none")
    (gradient,) = torch.autograd.grad(value, predictions)
    return gradient.double().cpu()
