"""The check of canvases."""

import pytest
import torch

from lensbox.bench.measure import WrongAnswerError
from lensbox.bench.ops.letterbox import check


def test_a_wrong_canvas_is_caught() -> None:
    expected = torch.full((1, 1, 256, 256), 100, dtype=torch.uint8)
    check(expected, "torch float32, antialias", expected + 2)
    with pytest.raises(WrongAnswerError, match="differs by up to 3 gray levels, 2 are allowed"):
        check(expected, "torch float32, antialias", expected - 3)
    with pytest.raises(WrongAnswerError, match="differs by up to 1 gray levels, 0 are allowed"):
        check(expected, "lensbox", expected + 1)
