"""The cases of the box loss: batches, the ways to the loss, and their reference in float64."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from lensbox.bench import article_module
from lensbox.bench.measure import Case, WrongAnswerError, optional
from lensbox.cli.bench import Call
from lensbox.ops import PackedTargets, jagged_giou_loss, masked_giou_loss, masked_giou_loss_and_grad

losses = article_module("losses")

GRADIENT_TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 1e-2}


# Boxes [B, M, 4], padded with zeros. Weights [B, M] follow if the loss has weights.
Targets = tuple[Tensor, ...]
Loss = Callable[[Tensor], Any]  # of predictions [B, M, 4]; returns the loss, or the loss and its gradient
Load = Callable[[Targets], Loss]  # raises UnavailableError


def make_loss_batch(
    batch: int,
    slots: int,
    fill: float | None,
    device: torch.device,
    dtypes: tuple[torch.dtype, torch.dtype],
    weighted: bool,
) -> tuple[Tensor, Targets]:
    """Return random predictions and targets.

    Predictions have odd coordinates and targets even ones, whole numbers up to 255: bfloat16, uint8 and every
    wider dtype hold them exactly, and no gradient depends on how a tie is split. Weights are float32: 1, 2 or
    3 for a box, 0 for padding.

    fill: share of valid slots. None: floor(|N(0, 3)|) boxes per sample as in the article, at most `slots`.
    dtypes: of predictions and targets.
    """
    generator = torch.Generator().manual_seed(0)
    if fill is None:
        counts = torch.randn(batch, generator=generator).mul(3).abs().floor().clamp(max=slots).int()
    else:
        counts = (torch.rand(batch, slots, generator=generator) < fill).sum(1)
    corners = torch.randint(0, 127, (2, batch, slots, 2, 2), generator=generator, dtype=torch.int16)
    pred, target = 2 * torch.cat([corners.amin(3), corners.amax(3) + 1], -1)
    valid = torch.arange(slots) < counts[:, None]
    target = (target * valid[..., None]).to(device, dtypes[1])
    weights = valid * (torch.arange(valid.numel()).view_as(valid) % 3 + 1.0)
    return (pred + 1).to(device, dtypes[0]), (target, weights.to(device)) if weighted else (target,)


def _padded(loss: Callable[..., Any], targets: Targets) -> Loss:
    return lambda pred: loss(pred, *targets)


def boxes_of(targets: Targets) -> list[Tensor]:
    """Return the boxes [n, 4] of each sample."""
    return [rows[rows[:, 3] != 0] for rows in targets[0]]


def _of_boxes(loss: Callable[..., Any], targets: Targets) -> Loss:
    boxes = boxes_of(targets)
    return lambda pred: loss(pred, boxes)


def _jagged(targets: Targets) -> Loss:
    packed = PackedTargets.pack([rows.cpu() for rows in boxes_of(targets)]).to(targets[0].device)
    return lambda pred: jagged_giou_loss(pred, packed.values, packed.offsets)


def _torchvision(targets: Targets) -> Loss:
    losses_of, target = optional("torchvision.ops").generalized_box_iou_loss, targets[0]

    def loss(pred: Tensor) -> Tensor:
        valid = target[..., 3] != 0
        found = torch.where(valid, losses_of(pred, target.float(), reduction="none"), 0.0)
        return found.sum() / valid.sum().clamp(min=1)

    return loss


ONE_OP, KERNEL = "lensbox, one op for both", "article's kernel"
PEERS: dict[str, Load] = {
    "lensbox": partial(_padded, masked_giou_loss),
    ONE_OP: partial(_padded, lambda pred, *targets: masked_giou_loss_and_grad(pred.detach(), *targets)),
    "lensbox jagged": _jagged,
    "eager": partial(_padded, losses.padded_loss),
    "torch.compile": lambda targets: _padded(losses.compiled(losses.padded_loss), targets),
    "concatenation": partial(_of_boxes, losses.concatenated_loss),
    "per-sample loop": partial(_of_boxes, losses.looped_loss),
    KERNEL: lambda targets: _padded(losses.article_loss(targets[0].device), targets),
    "triton": lambda targets: _padded(losses.triton_loss(targets[0].device), targets),
    "torchvision": _torchvision,
}

BYTES, FLOATS = (torch.bfloat16, torch.uint8), (torch.float32, torch.float32)
_MOST = ("lensbox", ONE_OP, "lensbox jagged", "eager", "torch.compile", KERNEL, "triton")
# The arguments of `make_loss_batch`, and the names of the ways.
Row = tuple[int, int, float | None, tuple[torch.dtype, torch.dtype], Iterable[str]]
GROUPS: dict[str, list[Row]] = {
    # The article's batch, and 256 boxes without padding.
    "headline": [
        (1024, 256, None, BYTES, PEERS),
        (1, 256, 1.0, FLOATS, ("lensbox", "eager", "torch.compile", "torchvision")),
    ],
    # As a training step calls it: 256 images of up to 160 targets, 7 cells a target, a weight for each cell.
    "weighted": [(256, 160 * 7, 0.1, FLOATS, ("lensbox", ONE_OP, "eager", "torch.compile"))],
    # Batches that differ from the article's in one size, and the largest one.
    "sizes": [
        *((batch, 256, None, BYTES, _MOST) for batch in (1, 16, 128, 4096)),
        *((1024, slots, None, BYTES, _MOST) for slots in (16, 64, 1024)),
        *((1024, 256, fill, BYTES, _MOST) for fill in (0.01, 0.1, 0.5, 1.0)),
        (4096, 1024, 1.0, BYTES, _MOST),
    ],
}


def cases(group: str, device: torch.device, quick: bool) -> Iterator[Case]:
    """Yield the forward pass, and the forward pass with the gradient. quick: without torch.compile."""
    for count, slots, fill, dtypes, names in GROUPS[group]:
        pred, targets = make_loss_batch(count, slots, fill, device, dtypes, weighted=group == "weighted")
        what = "|N(0,3)| boxes a sample" if fill is None else f"fill {fill:.0%}"
        kinds = "/".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        for with_gradient in (False, True):
            direction = "forward + backward" if with_gradient else "forward"
            odd = KERNEL if with_gradient else ONE_OP  # the kernel has no backward
            known = [name for name in names if name != odd and not (quick and name == "torch.compile")]
            ways = {name: partial(call_of, PEERS[name], pred, targets, with_gradient) for name in known}
            kind = "weighted loss" if group == "weighted" else "loss"
            title = f"{kind}, {direction}, [{count}, {slots}], {what}, {kinds}, {device.type.upper()}"
            yield Case(title, device.type, ways, partial(check, pred, targets, with_gradient))


def call_of(load: Load, pred: Tensor, targets: Targets, with_gradient: bool) -> Call:
    """Return the call of a loss, or with_gradient of a loss and its gradient."""
    loss, pred = load(targets), pred.clone().requires_grad_(with_gradient)

    def both() -> Any:
        found = loss(pred)
        return (found, *torch.autograd.grad(found, pred)) if isinstance(found, Tensor) else found

    return both if with_gradient else partial(loss, pred)


def check(pred: Tensor, targets: Targets, with_gradient: bool, _: str, found: Any) -> None:
    """Raise WrongAnswerError if a loss, or with_gradient a loss or its gradient, is wrong."""
    value, gradient = loss_reference(pred, *targets)
    require_close("loss", found[0] if with_gradient else found, value, 1e-4)
    if with_gradient:
        require_close("gradient", found[1], gradient, GRADIENT_TOLERANCE[pred.dtype])


def require_close(name: str, value: Tensor, expected: Tensor, tolerance: float) -> None:
    """Raise WrongAnswerError unless ‖value - expected‖ is within this share of ‖expected‖. NaN never is."""
    if value.shape != expected.shape:
        raise WrongAnswerError(f"the {name} has shape {list(value.shape)}, not {list(expected.shape)}")
    scale = max(float(expected.norm()), torch.finfo(torch.float32).tiny)
    error = float((value.detach().double() - expected).norm()) / scale
    if not error <= tolerance:
        raise WrongAnswerError(f"the {name} is off by {error:.2g} of its size, {tolerance:.2g} is allowed")


def loss_reference(pred: Tensor, target: Tensor, weight: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the mean of 1 - GIoU over the slots, and its gradient in `pred`, in float64.

    Without weights, slots count whose target's y2 is not 0.
    """
    pred = pred.detach().double().requires_grad_()
    weight = ((target[..., 3] != 0) if weight is None else weight).double()
    loss = (weight * (1 - losses.giou(pred, target.double()))).sum() / weight.sum().clamp(min=1)
    (gradient,) = torch.autograd.grad(loss, pred)
    return loss.detach(), gradient
