"""Detectors are loaded and checked alike whatever the program has set in torch."""

import torch

from lensbox.common.torch_settings import torch_defaults
from lensbox.model import faults_of, load_detector, weights_sha256


def test_settings_of_the_caller_change_no_detector() -> None:
    expected = weights_sha256(load_detector())
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"), torch.autocast("cpu", torch.bfloat16), torch.inference_mode():
            detector = load_detector()
            assert weights_sha256(detector) == expected
            assert detector.anchor_centers.dtype == torch.float32
            assert faults_of(detector) == []
            with torch_defaults():
                assert torch.ones(2) @ torch.ones(2) == 2
                assert torch.ones(2).dtype == torch.float32
            assert torch.empty(0).is_meta
            assert torch.empty(0).dtype == torch.get_default_dtype() == torch.float64
            assert torch.is_autocast_enabled("cpu")
    finally:
        torch.set_default_dtype(torch.float32)
