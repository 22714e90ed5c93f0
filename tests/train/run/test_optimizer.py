"""The schedule of a run."""

import pytest

from lensbox.train.run.optimizer import ema_weight, learning_rate, mosaic_on
from lensbox.train.settings import TrainConfig


def test_learning_rate_rises_then_falls() -> None:
    config = TrainConfig().replace(learning_rate=1.0, final_learning_rate=0.1, warmup_progress=0.1)
    rates = [learning_rate(i / 100, config) for i in range(101)]
    assert [rates[i] for i in (0, 5, 10, 55, 100)] == pytest.approx([1e-3, 0.5, 1.0, 0.55, 0.1])
    assert rates[10:] == sorted(rates[10:], reverse=True)


def test_average_forgets_the_start_and_mosaics_end() -> None:
    config = TrainConfig().replace(ema_decay=0.999, ema_warmup=10, plain_progress=0.2)
    assert ema_weight(0, config) == pytest.approx(0.9)
    assert ema_weight(10**6, config) == pytest.approx(0.001)
    # The default reaches back over about a ninth of a run, not over its last few steps.
    assert 1 / ema_weight(15_000, TrainConfig()) == pytest.approx(15_000 / 9, rel=0.01)
    assert mosaic_on(0.79, config) == 1
    assert mosaic_on(0.81, config) == 0
