"""The check of which boxes are kept."""

import pytest
import torch

from lensbox.bench.measure import WrongAnswerError
from lensbox.bench.ops.nms import check, make_boxes, nms_reference


def test_wrongly_kept_boxes_are_caught() -> None:
    boxes, scores = make_boxes(2, 100, torch.device("cpu"))
    check(boxes, scores, "torchvision", nms_reference(boxes, scores).view(-1).nonzero().flatten())
    with pytest.raises(WrongAnswerError, match="boxes are kept or dropped wrongly"):
        check(boxes, scores, "torchvision", torch.arange(200))
