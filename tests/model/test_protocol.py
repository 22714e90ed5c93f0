"""Canvases become numbers, and thresholds are checked, the same in eager mode and in TorchScript."""

from typing import Any

import pytest
import torch

from lensbox.common.canvas import Canvas
from lensbox.model.protocol import Numbers, check_threshold, dtype_name
from lensbox.runtime.torchscript import quiet_torchscript


def test_levels_are_normalised_by_channel_or_kept() -> None:
    levels = torch.tensor([0, 51, 255], dtype=torch.uint8).view(1, 3, 1, 1)
    kept = Numbers(Canvas(1, 1, channels=3))(levels)
    assert kept.dtype == torch.uint8
    numbers = Numbers(Canvas(1, 1, channels=3, mean=(0.5, 0.2, 0), std=(0.5, 1, 2)))(levels)
    torch.testing.assert_close(numbers.flatten(), torch.tensor([-1, 0, 0.5]))


def test_checks_say_the_same_in_torchscript() -> None:
    with quiet_torchscript():
        scripted: tuple[Any, Any] = torch.jit.script(check_threshold), torch.jit.script(dtype_name)
    for check, name in ((check_threshold, dtype_name), scripted):
        for value in (-0.1, 1.1, float("nan")):
            with pytest.raises(Exception, match=f"iou_threshold must be between 0 and 1, got {value}"):
                check("iou_threshold", value)
        assert name(torch.zeros(1, dtype=torch.bfloat16)) == "bfloat16"
