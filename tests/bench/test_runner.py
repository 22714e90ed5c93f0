"""The runner: which figures a case has, on the CPU and with stand-ins for a GPU, and the reasons for gaps."""

from collections.abc import Callable
from functools import partial

import pytest
import torch

from lensbox.bench import runner
from lensbox.bench.runner import (
    Case,
    Effort,
    MakeRun,
    Measure,
    Row,
    UnavailableError,
    Way,
    WrongAnswerError,
    always,
    copies_out_of_cache,
    run_case,
)
from lensbox.bench.timing import Run, Sampler, graph_sampler

EFFORT = Effort(rounds=3, sample_seconds=1e-5, figure_seconds=0.01, quick=True)
ALL: tuple[Measure, ...] = ("call", "complete", "graph", "graph cold")


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bool]]:
    """Stand in for CUDA graphs; list the iterations of each, and whether it keeps its outputs."""
    graphs: list[tuple[int, bool]] = []

    def capture(run: Run, iterations: int, keep_outputs: bool = False) -> Sampler:
        for index in range(iterations):
            run(index)
        graphs.append((iterations, keep_outputs))
        return lambda: 5.0

    monkeypatch.setattr(runner, "graph_sampler", capture)
    monkeypatch.setattr(runner, "_cache_bytes", lambda: 1000)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    return graphs


def nothing() -> None:
    pass


def raising(error: Exception) -> Callable[[], MakeRun]:
    def prepare() -> MakeRun:
        raise error

    return prepare


def measured(rows: list[Row], way: str) -> set[str]:
    return {row.measure for row in rows if row.way == way and row.summary is not None}


PREPARE = partial(always, nothing)


def test_each_measure_becomes_a_row(captured: list[tuple[int, bool]]) -> None:
    way = Way("all", PREPARE, ALL, images=2, useful_bytes=100)
    rows = run_case(Case("case", [way], "cuda"), EFFORT, 1e9)
    assert measured(rows, "all") == set(ALL)
    shares = {row.measure: row.share for row in rows}
    assert shares == {"call": None, "complete": None, "graph": None, "graph cold": pytest.approx(0.02)}
    # Warm graphs hold 10 to 200 calls; the cold one goes through four times the cache.
    (warm, kept), cold = captured
    assert 10 <= warm <= 200
    assert not kept
    assert cold == (40, True)


@pytest.mark.usefixtures("captured")
def test_a_missing_measure_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    ways = [
        Way("loop", PREPARE, ALL, useful_bytes=100, no_graph="thousands of launches"),
        Way("list", PREPARE, ALL, useful_bytes=100, no_copies="too many tensors"),
        Way("small", PREPARE, ALL, useful_bytes=1),
    ]
    rows = run_case(Case("case", ways, "cuda"), EFFORT)
    assert {(row.way, row.measure): row.note for row in rows if row.note} == {
        ("loop", "graph"): "not available: no CUDA graph: thousands of launches",
        ("loop", "graph cold"): "not available: no CUDA graph: thousands of launches",
        ("list", "graph cold"): "not available: too many tensors",
        ("small", "graph cold"): "not available: inputs are too small to be kept out of the cache",
    }
    assert [row.way for row in rows] == sorted((row.way for row in rows), key=["loop", "list", "small"].index)

    def fails(run: Run, iterations: int, keep_outputs: bool = False) -> Sampler:
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    monkeypatch.setattr(runner, "graph_sampler", fails)
    rows = run_case(Case("case", [Way("way", PREPARE, ("call", "graph"))], "cuda"), EFFORT)
    assert measured(rows, "way") == {"call"}
    (note,) = [row.note for row in rows if row.measure == "graph"]
    reason = "RuntimeError: operation not permitted when stream is capturing"
    assert note == f"not available: no CUDA graph: {reason}"


def test_goes_on_after_a_way_fails() -> None:
    calls = iter(range(100))

    def fails_later() -> None:
        if next(calls) > 3:
            raise RuntimeError("out of memory\nand a long trace")

    threads: set[int] = set()
    ways = [
        Way("wrong", raising(WrongAnswerError("off by 1")), own=True),
        Way("broken", raising(RuntimeError("no such op\nand a long trace")), own=True),
        Way("absent", raising(UnavailableError("no GPU")), own=True),
        Way("later", partial(always, fails_later)),
        Way("slow", PREPARE, slow_to_start=True),
        Way("good", partial(always, lambda: threads.add(torch.get_num_threads()))),
    ]
    before = torch.get_num_threads()
    rows = {row.way: row for row in run_case(Case("case", ways, threads=before + 1), EFFORT)}
    assert [row.note for row in rows.values()] == [
        "WRONG: off by 1",
        "failed: RuntimeError: no such op",
        "not available: no GPU",
        "failed: RuntimeError: out of memory",
        "not available: left out by --quick: it is slow to start",
        "",
    ]
    assert rows["good"].summary is not None
    assert [way for way, row in rows.items() if row.is_own_defect] == ["wrong", "broken"]
    assert (threads, torch.get_num_threads()) == ({before + 1}, before)


@pytest.mark.parametrize(
    ("touched", "cache", "expected"), [(10, 100, 40), (1000, 100, 2), (3, 100, 134), (1, 100, None)]
)
def test_copies_fill_four_times_the_cache(touched: int, cache: int, expected: int | None) -> None:
    assert copies_out_of_cache(touched, cache) == expected


@pytest.mark.gpu
def test_a_graph_runs_every_iteration_and_keeps_its_inputs() -> None:
    total = torch.zeros(1 << 20, device="cuda")

    def sampler_with_inputs_of_its_own() -> Sampler:
        ones = torch.ones(1 << 24, device="cuda")  # a separate memory segment, freed with its last tensor
        return graph_sampler(lambda index: total.add_(ones[-1]), 7)

    sampler = sampler_with_inputs_of_its_own()
    torch.cuda.empty_cache()
    before = float(total[0])
    assert sampler() > 0
    assert float(total[0]) - before == 14  # two replays, of which the second is timed
