"""Samples of calls that take turns."""

import time
from functools import partial

import pytest
import torch

from lensbox.cli import timing
from lensbox.cli.timing import summarize, time_in_turns


def test_summary_orders_its_samples() -> None:
    assert summarize([30.0, 10.0, 20.0, 50.0, 40.0, 0.0]) == (25.0, 10.0, 40.0, 6)


def test_calls_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "_ROUNDS", 3)
    order: list[str] = []
    threads: set[int] = set()

    def call(name: str, seconds: float) -> None:
        order.append(name)
        threads.add(torch.get_num_threads())
        time.sleep(seconds)

    before = torch.get_num_threads()
    seconds = {"a": 0.012, "b": 0.024}  # longer than a block, so that each block is one call
    times = time_in_turns({name: partial(call, name, seconds[name]) for name in seconds}, before + 1)
    assert "".join(order).endswith("b" + 3 * "aaabbb")  # two calls warm up before each sample
    assert threads == {before + 1}
    assert torch.get_num_threads() == before
    for name, least in seconds.items():
        assert times[name].samples == 3
        assert least <= times[name].p20 <= times[name].median <= times[name].p80


def test_cpu_time_leaves_out_sleep() -> None:
    def call() -> None:
        time.sleep(0.01)
        sum(range(10_000))

    times = time_in_turns({"call": call}, seconds=0.0, cpu_time=True)["call"]
    assert 0 < times.median < 0.01
