"""The check of canvases before a letterbox is timed."""

import pytest
import torch

from lensbox.bench.measure import WrongAnswerError
from lensbox.bench.ops.letterbox import ROUNDING, prepare


def test_a_wrong_canvas_is_caught() -> None:
    expected = torch.full((1, 1, 256, 256), 100, dtype=torch.uint8)
    prepare(lambda: lambda: expected + 2, expected, ROUNDING)
    with pytest.raises(WrongAnswerError, match="differs by up to 3 gray levels, 2 are allowed"):
        prepare(lambda: lambda: expected - 3, expected, ROUNDING)
