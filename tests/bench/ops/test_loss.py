"""The check of losses and gradients before they are timed."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from lensbox.bench.measure import WrongAnswerError
from lensbox.bench.ops.loss import losses, make_loss_batch, prepare

Change = Callable[[Tensor], Tensor]


def _with_wrong_gradient(right: Tensor) -> Tensor:
    return right.detach() + 1.01 * (right - right.detach())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda right: right + 0.01, "the loss is off by"),
        (lambda right: right[None], r"the loss has shape \[1\]"),
        (_with_wrong_gradient, "the gradient is off by"),
    ],
)
def test_a_wrong_loss_is_caught(change: Change, message: str) -> None:
    batch = make_loss_batch(6, 9, 0.4, torch.device("cpu"), (torch.float32, torch.uint8))
    with pytest.raises(WrongAnswerError, match=message):
        prepare(lambda batch: lambda pred: change(losses.padded_loss(pred, *batch.padded)), batch, True)
