"""The exercise: how valid slots are laid out, what is predicted, and (with a GPU) that the kernels agree."""

import pytest
import torch

from lensbox.bench.exercise import (
    REPEATS,
    WARP,
    Warps,
    point_lines,
    predicted_gain,
    run_exercise,
    valid_slots,
)


@pytest.mark.parametrize("warps", ["mixed", "uniform"])
def test_the_share_of_valid_slots(warps: Warps) -> None:
    valid = valid_slots(WARP * 8192, 0.25, warps)
    assert float(valid.double().mean()) == pytest.approx(0.25, abs=0.02)


def test_uniform_warps_hold_one_kind_only() -> None:
    in_warp = valid_slots(WARP * 512, 0.5, "uniform").view(-1, WARP).sum(1)
    assert set(in_warp.tolist()) == {0, WARP}


def test_mixed_warps_idle_as_often_as_predicted() -> None:
    busy = valid_slots(WARP * 65_536, 0.01, "mixed").view(-1, WARP).any(1).double().mean()
    assert 1 / float(busy) == pytest.approx(predicted_gain(0.01, "mixed"), rel=0.03)


@pytest.mark.parametrize(
    ("fill", "warps", "gain"),
    [(0.01, "uniform", 100), (0.01, "mixed", 3.636), (0.5, "mixed", 1), (1.0, "uniform", 1)],
)
def test_predicted_gains(fill: float, warps: Warps, gain: float) -> None:
    assert predicted_gain(fill, warps) == pytest.approx(gain, rel=1e-3)


@pytest.mark.gpu
def test_kernels_agree_with_the_reference() -> None:
    points = run_exercise(quick=True)  # raises WrongAnswerError
    assert len(point_lines(points)) == len(points) > 0


@pytest.mark.gpu
def test_kernels_refuse_what_they_cannot_do() -> None:
    from lensbox.bench.extension import load_extension

    load_extension(torch.device("cuda"))
    pred = torch.zeros(256, 4, dtype=torch.bfloat16, device="cuda")
    target = torch.zeros(256, 4, dtype=torch.uint8, device="cuda")
    assert max(REPEATS) == 256
    with pytest.raises(RuntimeError, match="repeats must be a power of two from 1 to 256, got 3"):
        torch.ops.lensbox_bench.exercise(pred, target, 3, True)
    with pytest.raises(RuntimeError, match="multiple of 256 slots, got 255"):
        torch.ops.lensbox_bench.exercise(pred[:255], target[:255], 1, True)
