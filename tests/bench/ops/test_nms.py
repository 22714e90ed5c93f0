"""The check of NMS before it is timed."""

import pytest
import torch

from lensbox.bench.measure import WrongAnswerError
from lensbox.bench.ops.nms import make_boxes, nms_reference, prepare


def test_wrongly_kept_boxes_are_caught() -> None:
    boxes, scores = make_boxes(2, 100, torch.device("cpu"))
    kept = nms_reference(boxes, scores).view(-1).nonzero().flatten()
    prepare(lambda *_: lambda: kept, boxes, scores)  # as torchvision answers
    with pytest.raises(WrongAnswerError, match="boxes are kept or dropped wrongly"):
        prepare(lambda *_: lambda: torch.arange(200), boxes, scores)
