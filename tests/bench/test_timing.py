"""The arithmetic of the timing core, on clocks that tick as the test says."""

from collections.abc import Callable

import pytest

from lensbox.bench.timing import Series, call_sampler, complete_sampler, find_pace, interleave, summarize


class FakeDevice:
    """A host that takes `host` seconds a call, and a device that takes `device` seconds and is waited for."""

    def __init__(self, host: float, device: float) -> None:
        self.now = 0.0
        self.host, self.device = host, device
        self.device_is_busy_until = 0.0
        self.calls: list[int] = []

    def clock(self) -> float:
        return self.now

    def run(self, index: int) -> None:
        self.calls.append(index)
        self.now += self.host
        self.device_is_busy_until = max(self.now, self.device_is_busy_until) + self.device

    def synchronize(self) -> None:
        self.now = max(self.now, self.device_is_busy_until)


def test_summary_orders_its_samples() -> None:
    summary = summarize([30.0, 10.0, 20.0, 50.0, 40.0, 0.0])
    assert (summary.p20, summary.median, summary.p80, summary.samples) == (10.0, 25.0, 40.0, 6)


def test_a_call_counts_the_host_and_not_the_device() -> None:
    fake = FakeDevice(host=2e-6, device=7e-6)
    sample = call_sampler(fake.run, 10, fake.synchronize, fake.clock)
    assert sample() == pytest.approx(2.0)
    assert fake.calls[-10:] == list(range(10))
    assert len(fake.calls) == 11 * 10, "ten times as many to warm up"
    # The next sample starts with an idle device: the wait before it is not counted.
    assert sample() == pytest.approx(2.0)

    slow = FakeDevice(host=4e-3, device=0.0)
    assert call_sampler(slow.run, 2, slow.synchronize, slow.clock)() == pytest.approx(4000)
    assert slow.calls == [0, 1, 2, 0, 1], "warms up for 12 ms, then takes the sample"


@pytest.mark.parametrize(("host", "device"), [(2e-6, 7e-6), (7e-6, 2e-6)])
def test_completion_counts_the_wait_for_the_device(host: float, device: float) -> None:
    fake = FakeDevice(host, device)
    assert complete_sampler(fake.run, 10, fake.synchronize, fake.clock)() == pytest.approx(7.2)


@pytest.mark.parametrize(
    ("host", "sample", "at_most", "calls"),
    [(1e-5, 0.01, 100_000, 1000), (0.5, 0.01, 100_000, 1), (1e-6, 1.0, 20, 20)],
    ids=["fills the sample", "slow calls", "limit"],
)
def test_pace_fills_the_sample(host: float, sample: float, at_most: int, calls: int) -> None:
    fake = FakeDevice(host, device=0.0)
    pace = find_pace(sample, fake.run, fake.synchronize, at_most, fake.clock)
    assert pace.calls == pytest.approx(calls, abs=1)
    assert pace.seconds == pytest.approx(host)


def test_series_take_turns_and_short_ones_are_spread() -> None:
    order: list[str] = []

    def sampler(name: str) -> Callable[[], float]:
        def sample() -> float:
            order.append(name)
            return float(len(order))

        return sample

    samples = interleave({"often": Series(sampler("often"), 6), "seldom": Series(sampler("seldom"), 2)})
    warm_up, taken = order[:2], order[2:]
    assert warm_up == ["often", "seldom"]
    assert taken == ["often", "often", "often", "seldom", "often", "often", "often", "seldom"]
    assert samples["often"] == [3, 4, 5, 7, 8, 9]
    assert samples["seldom"] == [6, 10]
