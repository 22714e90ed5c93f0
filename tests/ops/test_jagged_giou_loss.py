"""jagged_giou_loss against float64, and its rules for offsets."""

from typing import Any

import pytest
import torch
from box_reference import BOX_DTYPES, FLOAT_DTYPES, check_op, loss_reference, random_boxes
from torch import Tensor

from lensbox.ops import PackedTargets, jagged_giou_loss

COUNTS = [0, 3, 0, 0, 17, 1, 0, 5, 40, 0]
SLOTS = 40


def batch(
    counts: list[int] = COUNTS, slots: int = SLOTS, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, PackedTargets]:
    """Return predictions and packed targets."""
    boxes = [random_boxes(count, dtype=dtype) for count in counts]
    return random_boxes(len(counts), slots), PackedTargets.pack(boxes)


def check(pred: Tensor, packed: PackedTargets, device: torch.device) -> None:
    """Compare the loss and its gradients with float64."""
    used = torch.arange(pred.shape[1]) < packed.offsets.diff()[:, None]
    offsets = packed.offsets.to(device)
    loss, _ = check_op(
        lambda pred, values: jagged_giou_loss(pred, values, offsets),
        lambda pred, values: loss_reference(pred[used], values),
        (pred, packed.values),
        device,
    )
    in_double = torch.float64 in (pred.dtype, packed.values.dtype)
    assert loss.dtype == (torch.float64 if in_double else torch.float32)


@pytest.mark.parametrize("pred_dtype", FLOAT_DTYPES)
@pytest.mark.parametrize("target_dtype", BOX_DTYPES)
def test_every_pair_of_dtypes(
    device: torch.device, pred_dtype: torch.dtype, target_dtype: torch.dtype
) -> None:
    pred, packed = batch(dtype=target_dtype)
    check(pred.to(pred_dtype), packed, device)


@pytest.mark.parametrize(
    ("counts", "slots"),
    [
        *[([0], 0), ([0, 0], 3), ([1], 1), ([7] * 300, 7), ([0] * 99 + [2], 5), ([1000, 0, 513], 1000)],
        # Few boxes a sample, but for one: a GPU's warps take one part after another.
        ([3, 0, 601, *[3] * 30], 601),
    ],
)
def test_shapes(device: torch.device, counts: list[int], slots: int) -> None:
    check(*batch(counts, slots), device)


def test_no_images(device: torch.device) -> None:
    pred = torch.zeros(0, 5, 4, device=device, requires_grad=True)
    offsets = torch.zeros(1, dtype=torch.int64, device=device)
    loss = jagged_giou_loss(pred, torch.zeros(0, 4, device=device), offsets)
    loss.backward()
    assert loss.item() == 0


def test_int32_offsets(device: torch.device) -> None:
    pred, packed = batch()
    pred, packed = pred.to(device), packed.to(device)
    expected = jagged_giou_loss(pred, packed.values, packed.offsets)
    assert torch.equal(jagged_giou_loss(pred, packed.values, packed.offsets.int()), expected)


BROKEN_OFFSETS = {
    "start": [1, 2, 4],
    "fall": [0, 3, 2],
    "end": [0, 2, 3],
    "past the end": [0, 2, 9],
    "negative": [0, -1, 4],
    "more than there are slots": [0, 0, 4],
}


@pytest.mark.parametrize("offsets", BROKEN_OFFSETS.values(), ids=BROKEN_OFFSETS.keys())
def test_broken_offsets(device: torch.device, offsets: list[int]) -> None:
    pred = random_boxes(2, 3).to(device).requires_grad_()
    targets = random_boxes(4).to(device).requires_grad_()
    arguments = (pred, targets, torch.tensor(offsets, device=device))
    if device.type == "cpu":
        with pytest.raises(ValueError, match=r"offsets must start at 0, never fall.*got offsets\["):
            jagged_giou_loss(*arguments)
    else:
        loss = jagged_giou_loss(*arguments)
        loss.backward()
        assert loss.isnan()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"pred": torch.zeros(8, 4)}, RuntimeError, r"pred must have shape \[B, M, 4\].*got \[8, 4\]"),
        ({"pred": torch.zeros(2, 3, 4).long()}, TypeError, "pred must be float64.*got Long"),
        ({"targets": torch.zeros(4, 5)}, RuntimeError, r"targets must have shape \[N, 4\].*got \[4, 5\]"),
        ({"offsets": torch.tensor([0, 4])}, RuntimeError, r"offsets must have shape \[B \+ 1\].*got \[2\]"),
        ({"offsets": torch.tensor([0, 2, 4, 4])}, RuntimeError, r"offsets must have .*\[B \+ 1\].*got \[4\]"),
        ({"offsets": torch.tensor([0.0, 2, 4])}, TypeError, "offsets must be int64 or int32, got Float"),
        ({"eps": 0.0}, ValueError, "eps must be between"),
        (
            {"pred": torch.zeros(0, 3, 4), "targets": torch.zeros(0, 4), "offsets": torch.tensor([7])},
            ValueError,
            r"offsets must be \[0\] where pred has no images, got offsets\[0\] = 7",
        ),
    ],
)
def test_rejects_bad_arguments(change: dict[str, Any], error: type[Exception], message: str) -> None:
    good = {"pred": torch.zeros(2, 3, 4), "targets": torch.ones(4, 4), "offsets": torch.tensor([0, 2, 4])}
    with pytest.raises(error, match=message):
        jagged_giou_loss(**(good | change))
