"""Checks of a detector's arguments, in eager mode and in TorchScript."""

import math

import pytest
import torch

from lensbox.model.protocol import check_threshold, dtype_name


def test_names_dtypes() -> None:
    for name in ("float32", "bfloat16", "int64", "bool"):
        assert dtype_name(torch.zeros(1, dtype=getattr(torch, name))) == name


def test_thresholds_lie_between_0_and_1() -> None:
    for value in (0.0, 1.0):
        check_threshold("score_threshold", value)
    for value in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match=f"score_threshold must be between 0 and 1, got {value}"):
            check_threshold("score_threshold", value)
