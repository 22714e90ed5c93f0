"""The schedule of a run."""

import pytest

from lensbox.train.run.optimizer import Clock, ema_weight, learning_rate, mosaic_on
from lensbox.train.settings import TrainConfig


def test_learning_rate_rises_then_falls() -> None:
    config = TrainConfig().replace(learning_rate=1.0, final_learning_rate=0.1, warmup_progress=0.1)
    rates = [learning_rate(i / 100, config) for i in range(101)]
    assert [rates[i] for i in (0, 5, 10, 55, 100)] == pytest.approx([1e-3, 0.5, 1.0, 0.55, 0.1])
    assert rates[10:] == sorted(rates[10:], reverse=True)


@pytest.mark.parametrize(
    ("clock", "progress"),
    [
        (Clock(100), {(25, 1e9): 0.25}),
        # Steps or time, whichever is further
        (Clock(100, 120, start_seconds=20), {(0, 20): 0, (0, 70): 0.5, (60, 70): 0.6, (0, 500): 1}),
        (Clock(1000, 100, start_progress=0.5), {(0, 50): 0.75}),
        # A resumed run of steps goes on with exactly the shares it would have had.
        (Clock(7, start_progress=3 / 7), {(5, 0): 5 / 7}),
    ],
)
def test_progress(
    clock: Clock, progress: dict[tuple[int, float], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    for (step, seconds), expected in progress.items():
        monkeypatch.setattr("time.monotonic", lambda now=seconds: now)
        assert clock.progress(step) == expected


def test_average_forgets_the_start_and_mosaics_end() -> None:
    config = TrainConfig().replace(ema_decay=0.999, ema_warmup=10, plain_progress=0.2)
    assert ema_weight(0, config) == pytest.approx(0.9)
    assert ema_weight(10**6, config) == pytest.approx(0.001)
    # The default reaches back over about a ninth of a run, not over its last few steps.
    assert 1 / ema_weight(15_000, TrainConfig()) == pytest.approx(15_000 / 9, rel=0.01)
    assert mosaic_on(0.79, config) == 1
    assert mosaic_on(0.81, config) == 0
