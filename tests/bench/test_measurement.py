"""Which figures a case on a GPU has, with stand-ins for the GPU: what is captured, what is not and why."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from lensbox.bench import measurement
from lensbox.bench.cases import Case
from lensbox.bench.comparison import compare
from lensbox.bench.measurement import QUICK, run_case
from lensbox.bench.peers import concatenation, eager, per_sample, registry
from lensbox.bench.peers.peer import Peer
from lensbox.bench.results import Row
from lensbox.bench.timing import Run, Sampler, Series
from lensbox.bench.workload import Workload, make_workload

PEERS = [
    Peer("lensbox", eager.load_loss),
    Peer("concatenation", concatenation.load_loss, rotates=False),
    Peer("loop", per_sample.load_loss, not_capturable="thousands of launches"),
    Peer("forward only", eager.load_loss, no_backward="forward only"),
]


class Captures:
    """Stands in for graph_sampler: runs all iterations, and remembers what they returned."""

    def __init__(self) -> None:
        self.iterations: list[tuple[int, bool]] = []

    def __call__(self, run: Run, iterations: int, keep_outputs: bool = False) -> Sampler:
        outputs = [run(index) for index in range(iterations)]
        self.iterations.append((iterations, keep_outputs))
        assert len(outputs) == iterations
        return lambda: 5.0


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> Captures:
    def on_cpu(case: Case) -> Workload:
        return make_workload(replace(case, device="cpu"))

    stand_in = Captures()
    monkeypatch.setattr(registry, "LOSS_PEERS", PEERS)
    monkeypatch.setattr(measurement, "make_workload", on_cpu)
    monkeypatch.setattr(measurement, "graph_sampler", stand_in)
    monkeypatch.setattr(measurement, "cache_bytes", lambda device: 1000)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    return stand_in


def measured(rows: list[Row], peer: str) -> set[str]:
    return {row.measure for row in rows if row.peer == peer and row.summary is not None}


def test_measures_of_a_headline_case(captures: Captures) -> None:
    case = Case("headline", "loss", "forward+backward", "cuda", 4, 8, cold=True)
    rows = run_case(case, QUICK, 1e12)
    assert measured(rows, "lensbox") == {"call", "graph", "graph cold"}
    assert measured(rows, "concatenation") == {"call", "graph"}
    assert measured(rows, "loop") == {"call"}
    assert measured(rows, "forward only") == set()
    notes = {(row.peer, row.measure): row.note for row in rows if row.note}
    assert notes == {
        ("concatenation", "graph cold"): (
            "not available: its inputs are too many tensors to be copied hundreds of times"
        ),
        ("loop", "graph"): "not available: no CUDA graph: thousands of launches",
        ("loop", "graph cold"): "not available: no CUDA graph: thousands of launches",
        ("forward only", ""): "not available: forward only",
    }
    # Warm graphs hold at least 10 calls; the cold one goes through four times the cache.
    (warm, *_), (cold,) = (
        [count for count, keeps in captures.iterations if keeps is wanted] for wanted in (False, True)
    )
    assert 10 <= warm <= 200
    useful = next(row.useful_bytes for row in rows if row.measure == "graph cold")
    assert useful > 0
    assert (cold - 1) * useful < 4000 + 9 * useful
    assert cold * useful >= 4000


def test_shares_are_of_cold_figures_only(captures: Captures) -> None:
    rows = run_case(Case("headline", "loss", "forward", "cuda", 4, 8, cold=True), QUICK, 1e9)
    shares = {row.measure: row.share for row in rows if row.peer == "lensbox"}
    (useful,) = {row.useful_bytes for row in rows if row.peer == "lensbox"}
    assert shares["call"] is None
    assert shares["graph"] is None
    assert shares["graph cold"] == pytest.approx(useful / 5e-6 / 1e9)


def test_a_failed_capture_leaves_the_call_time(captures: Captures, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(run: Run, iterations: int, keep_outputs: bool = False) -> Sampler:
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    monkeypatch.setattr(measurement, "graph_sampler", fails)
    rows = run_case(Case("headline", "loss", "forward", "cuda", 4, 8), QUICK, 1e12)
    assert measured(rows, "lensbox") == {"call"}
    (note,) = [row.note for row in rows if row.peer == "lensbox" and row.measure == "graph"]
    assert note == (
        "not available: no CUDA graph: RuntimeError: operation not permitted when stream is capturing"
    )


def test_a_measure_that_fails_while_it_is_sampled_leaves_the_others(
    captures: Captures, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> float:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(measurement, "graph_sampler", lambda *_, **__: fails)
    rows = run_case(Case("headline", "loss", "forward", "cuda", 4, 8), QUICK, 1e12)
    assert measured(rows, "lensbox") == {"call"}
    (note,) = [row.note for row in rows if row.peer == "lensbox" and row.measure == "graph"]
    assert note == "failed: RuntimeError: out of memory"
    for series in ({"bad": fails, "good": lambda: 1.0}, {"good": lambda: 1.0, "bad": fails}):
        outcomes = compare({name: partial(Series, sampler, 3) for name, sampler in series.items()})
        assert list(outcomes) == list(series)
        assert outcomes["bad"].note == "failed: RuntimeError: out of memory"
        assert outcomes["good"].summary is not None


def test_quick_leaves_out_what_compiles(captures: Captures, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "LOSS_PEERS", [Peer("compiled", eager.load_loss, slow_to_start=True)])
    (row,) = run_case(Case("headline", "loss", "forward", "cuda", 4, 8), QUICK, 1e12)
    assert row.note == "not available: left out by --quick: it compiles for each shape"
