"""Ways are checked, timed in turns and shown as a table; the description of the machine."""

from collections.abc import Callable
from functools import partial

import pytest
import torch

from lensbox.bench.measure import (
    Case,
    Result,
    UnavailableError,
    Way,
    WrongAnswerError,
    run_case,
)
from lensbox.cli import timing
from lensbox.cli.timing import Call, Times


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "_ROUNDS", 3)
    monkeypatch.setattr(timing, "_BLOCK_SECONDS", 1e-4)


def raising(error: Exception) -> Callable[[], Call]:
    def prepare() -> Call:
        raise error

    return prepare


def test_a_way_that_fails_has_a_note_and_the_others_have_times() -> None:
    ways = [
        Way("good", lambda: lambda: sum(range(100)), own=True),
        Way("wrong", raising(WrongAnswerError("off by 1"))),
        Way("broken", raising(RuntimeError("no such op\nand a long trace"))),
        Way("absent", raising(UnavailableError("no GPU"))),
    ]
    result = run_case(Case("case", ways))
    assert list(result.times["call"]) == ["good"]
    assert result.notes == {
        "wrong": "WRONG: off by 1",
        "broken": "failed: RuntimeError: no such op",
        "absent": "not available: no GPU",
    }
    assert not result.own_defect
    assert run_case(Case("case", [*ways, Way("ours", raising(WrongAnswerError("")), own=True)])).own_defect


def test_tables_show_multiples_of_the_first_way() -> None:
    times = {"ours": Times(2e-6, 1e-6, 3e-6, 9), "theirs": Times(5e-4, 4e-4, 6e-4, 9)}
    graph = {"ours": Times(1e-6, 1e-6, 1e-6, 9)}
    notes = {"theirs": "no CUDA graph: it waits"}
    assert Result("case", {"call": times, "graph": graph}, notes, False).table().markdown().splitlines() == [
        "### case",
        "",
        "| way    |         call, µs |    x |        graph, µs |    x |",
        "| ------ | ---------------: | ---: | ---------------: | ---: |",
        "| ours   | 2.00 (1.00-3.00) | 1.00 | 1.00 (1.00-1.00) | 1.00 |",
        "| theirs |    500 (400-600) |  250 |                  |      |",
        "",
        "- theirs: no CUDA graph: it waits",
    ]


@pytest.mark.gpu
def test_a_gpu_is_timed_in_graphs_too() -> None:
    values = torch.ones(1 << 20, device="cuda")
    ways = [
        Way("in a graph", lambda: partial(torch.add, values, 1)),
        Way("waits", lambda: lambda: values[0].item(), in_graph=False),
        Way("fails in a graph", lambda: lambda: values[0].item()),
    ]
    result = run_case(Case("case", ways, "cuda"), seconds=0.1)
    assert set(result.times["call"]) == {way.name for way in ways}
    assert set(result.times["graph"]) == {"in a graph"}
    assert 0 < result.times["graph"]["in a graph"].median < 1e-3
    assert result.notes["fails in a graph"].startswith("no CUDA graph: ")
