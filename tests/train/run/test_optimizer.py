"""The schedule of a run."""

import pytest

from lensbox.train.run.optimizer import Clock, ema_weight, learning_rate, mosaic_on
from lensbox.train.settings import TrainConfig


def test_learning_rate_rises_then_falls() -> None:
    config = TrainConfig().replace(learning_rate=1.0, final_learning_rate=0.1, warmup_progress=0.1)
    rates = [learning_rate(i / 100, config) for i in range(101)]
    assert rates[0] == pytest.approx(1e-3)
    assert rates[5] == pytest.approx(0.5)
    assert rates[10] == pytest.approx(1.0)
    assert rates[55] == pytest.approx(0.55)
    assert rates[100] == pytest.approx(0.1)
    assert rates[10:] == sorted(rates[10:], reverse=True)


def test_clock_takes_steps_or_time_whichever_is_further() -> None:
    assert Clock(100).progress(25, 1e9) == 0.25
    clock = Clock(100, seconds=120, start_seconds=20)
    assert clock.progress(0, 20) == 0
    assert clock.progress(0, 70) == 0.5
    assert clock.progress(60, 70) == 0.6
    assert clock.progress(0, 500) == 1
    resumed = Clock(1000, seconds=100, start_seconds=0, start_progress=0.5)
    assert resumed.progress(0, 50) == 0.75


def test_a_run_that_time_had_brought_far_spreads_the_rest_over_its_steps() -> None:
    clock = Clock(300, start_step=100, start_progress=0.5)
    assert clock.progress(100, 0) == 0.5
    assert clock.progress(200, 0) == 0.75
    assert clock.progress(300, 0) == 1
    # A run of steps goes on with exactly the shares it would have had.
    assert Clock(7, start_step=3, start_progress=3 / 7).progress(5, 0) == 5 / 7


def test_average_forgets_the_start_and_mosaics_end() -> None:
    config = TrainConfig().replace(ema_decay=0.999, ema_warmup=10, plain_progress=0.2)
    assert ema_weight(0, config) == pytest.approx(0.9)
    assert ema_weight(10**6, config) == pytest.approx(0.001)
    # The default reaches back over about a ninth of a run, not over its last few steps.
    assert 1 / ema_weight(15_000, TrainConfig()) == pytest.approx(15_000 / 9, rel=0.01)
    assert mosaic_on(0.79, config) == 1
    assert mosaic_on(0.81, config) == 0
