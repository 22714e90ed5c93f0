"""The check of a loss and its gradient."""

from functools import partial

import pytest
import torch

from lensbox.bench.measure import WrongAnswerError
from lensbox.bench.ops.loss import check, loss_reference, make_loss_batch


def test_a_wrong_loss_is_caught() -> None:
    dtypes = (torch.float32, torch.uint8)
    pred, targets = make_loss_batch(6, 9, 0.4, torch.device("cpu"), dtypes, weighted=False)
    right, gradient = loss_reference(pred, *targets)
    of_both = partial(check, pred, targets, True, "a way")
    of_both((right, gradient))
    for wrong, message in (
        ((right + 0.01, gradient), "the loss is off by"),
        ((right[None], gradient), r"the loss has shape \[1\]"),
        ((right, 1.01 * gradient), "the gradient is off by"),
    ):
        with pytest.raises(WrongAnswerError, match=message):
            of_both(wrong)
