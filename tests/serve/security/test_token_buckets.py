"""Token buckets against a plain model of them, and shared by processes."""

import multiprocessing
import random
import time
from pathlib import Path
from typing import Any

import pytest

from lensbox.serve.security.token_buckets import TokenBuckets


class _Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class _Bucket:
    """The textbook's: tokens that are added as time goes by, and taken."""

    def __init__(self, rate: float, burst: int) -> None:
        self.rate, self.burst = rate, burst
        self.tokens, self.at = float(burst), 1000.0

    def take(self, now: float) -> bool:
        self.tokens = min(self.burst, self.tokens + (now - self.at) * self.rate)
        self.at = now
        if self.tokens < 1 - 1e-6:
            return False
        self.tokens -= 1
        return True


@pytest.mark.parametrize(("rate", "burst"), [(1.0, 1), (0.3, 5), (1000.0, 10), (7.0, 100)])
def test_it_allows_what_a_plain_bucket_does(rate: float, burst: int) -> None:
    clock, chance = _Clock(), random.Random(1)
    buckets = TokenBuckets(rate, burst, clock)
    models = {name: _Bucket(rate, burst) for name in ("a", "b", "c")}
    refused = 0
    for _ in range(3000):
        # In 64ths of what a token takes, which floats hold exactly.
        clock.now += chance.choice([0] * 9 + [1, 13, 64]) / 64 / rate
        name = chance.choice(list(models))
        level = buckets.take(name)
        assert level.allowed == models[name].take(clock.now)
        assert level.left == pytest.approx(int(models[name].tokens + 1e-5))
        assert level.full == pytest.approx((burst - models[name].tokens) / rate, abs=1e-5)
        assert level.next == pytest.approx(max(0, 1 - models[name].tokens) / rate, abs=1e-5)
        refused += not level.allowed
    assert 100 < refused < 2900


def test_a_refused_request_costs_nothing() -> None:
    clock = _Clock()
    buckets = TokenBuckets(1.0, 2, clock)
    assert [buckets.take("a").allowed for _ in range(4)] == [True, True, False, False]
    clock.now += 1.0
    assert [buckets.take("a").allowed for _ in range(2)] == [True, False]
    assert buckets.take("b").allowed


def test_many_clients_take_no_more_memory_and_keep_a_limit() -> None:
    clock = _Clock()
    buckets = TokenBuckets(1.0, 3, clock)
    for number in range(100_000):
        clock.now += 0.01
        buckets.take(str(number))
    taken = [buckets.take("mine").allowed for _ in range(4)]
    for number in range(1000):
        buckets.take(f"other {number}")
    assert taken == [True, True, True, False]
    assert not buckets.take("mine").allowed


def _take(buckets: TokenBuckets, count: int, answers: Any) -> None:
    answers.put(sum(buckets.take("a").allowed for _ in range(count)))


def test_processes_share_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[3])  # where a spawned process finds `_take`
    buckets = TokenBuckets(1e-6, 500)
    context = multiprocessing.get_context("spawn")  # whatever other tests have done to a fork server
    answers = context.Queue()
    processes = [context.Process(target=_take, args=(buckets, 400, answers)) for _ in range(3)]
    for process in processes:
        process.start()
    allowed = [answers.get(timeout=60) for _ in processes]
    for process in processes:
        process.join(60)
    assert sum(allowed) == 500
    assert not buckets.take("a").allowed


def test_a_token_takes_next_to_no_time() -> None:
    buckets = TokenBuckets(1e6, 1_000_000)
    start = time.perf_counter()
    for _ in range(1000):
        buckets.take("a")
    assert time.perf_counter() - start < 1.0
