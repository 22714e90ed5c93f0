"""Each benchmark of an op catches a wrong answer before it is timed."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from lensbox.bench.measure import WrongAnswerError
from lensbox.bench.ops import letterbox, loss, nms

CANVAS = torch.full((1, 1, 256, 256), 100, dtype=torch.uint8)
PRED, TARGETS = loss.make_loss_batch(
    6, 9, 0.4, torch.device("cpu"), (torch.float32, torch.uint8), weighted=False
)
LOSS, GRADIENT = loss.loss_reference(PRED, *TARGETS)
BOXES, SCORES = nms.make_boxes(2, 100, torch.device("cpu"))
KEPT = nms.nms_reference(BOXES, SCORES).view(-1).nonzero().flatten()

of_resize = partial(letterbox.check, CANVAS, "torch float32, antialias")
of_ours = partial(letterbox.check, CANVAS, "lensbox")
of_loss = partial(loss.check, PRED, TARGETS, True, "a way")
of_nms = partial(nms.check, BOXES, SCORES, "torchvision")


@pytest.mark.parametrize(
    ("check", "right", "wrong", "message"),
    [
        (of_resize, CANVAS + 2, CANVAS - 3, "differs by up to 3 gray levels, 2 are allowed"),
        (of_ours, CANVAS, CANVAS + 1, "differs by up to 1 gray levels, 0 are allowed"),
        (of_loss, (LOSS, GRADIENT), (LOSS + 0.01, GRADIENT), "the loss is off by"),
        (of_loss, (LOSS, GRADIENT), (LOSS[None], GRADIENT), r"the loss has shape \[1\]"),
        (of_loss, (LOSS, GRADIENT), (LOSS, 1.01 * GRADIENT), "the gradient is off by"),
        (of_nms, KEPT, torch.arange(200), "boxes are kept or dropped wrongly"),
    ],
)
def test_a_wrong_answer_is_caught(check: Callable[[Any], None], right: Any, wrong: Any, message: str) -> None:
    check(right)
    with pytest.raises(WrongAnswerError, match=message):
        check(wrong)
