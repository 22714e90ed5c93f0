"""Ways are checked, timed in turns and shown as a table."""

from collections.abc import Callable
from functools import partial
from unittest.mock import Mock

import pytest
import torch

from lensbox.bench.measure import Case, UnavailableError, WrongAnswerError, run_case, time_table
from lensbox.cli import bench as timing
from lensbox.cli.bench import Call, Times


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "_ROUNDS", 3)
    monkeypatch.setattr(timing, "_BLOCK_SECONDS", 1e-4)


def test_a_way_that_fails_has_a_note_and_the_others_have_times() -> None:
    def wrong(way: str, answer: object) -> None:
        if answer != 4950:
            raise WrongAnswerError(f"{way}, off by 1")

    ways: dict[str, Callable[[], Call]] = {
        "good": lambda: lambda: sum(range(100)),
        "bad": lambda: lambda: sum(range(99)),
        "broken": Mock(side_effect=RuntimeError("no such op\nand a long trace")),
        "absent": Mock(side_effect=UnavailableError("no GPU")),
    }
    table, is_good = run_case(Case("case", "cpu", ways, wrong))
    assert is_good
    _, header, _, good, _, *notes = table.splitlines()[1:]
    assert header.startswith("| way ")
    assert good.startswith("| good |")
    assert notes == [
        "- bad: WRONG: bad, off by 1",
        "- broken: failed: RuntimeError: no such op",
        "- absent: not available: no GPU",
    ]
    assert not run_case(Case("case", "cpu", {**ways, "lensbox jagged": ways["bad"]}, wrong))[1]


def test_tables_show_multiples_of_the_first_way() -> None:
    times = {"ours": Times(2e-6, 1e-6, 3e-6, 9), "theirs": Times(5e-4, 4e-4, 6e-4, 9)}
    graph = {"ours": Times(1e-6, 1e-6, 1e-6, 9)}
    notes = {"theirs": "no CUDA graph: it waits"}
    rows = [
        line.split("|")[1:-1]
        for line in time_table("case", {"call": times, "graph": graph}, notes).splitlines()
    ]
    cells = [[cell.strip() for cell in row] for row in rows if row]
    assert cells[2:] == [
        ["ours", "2.00 (1.00-3.00)", "1.00", "1.00 (1.00-1.00)", "1.00"],
        ["theirs", "500 (400-600)", "250", "", ""],
    ]


@pytest.mark.gpu
def test_a_gpu_is_timed_in_graphs_too() -> None:
    values = torch.ones(1 << 20, device="cuda")
    ways: dict[str, Callable[[], Call]] = {
        "in a graph": lambda: partial(torch.add, values, 1),
        "waits": lambda: lambda: values[0].item(),
    }
    table, _ = run_case(Case("case", "cuda", ways, lambda *_: None), seconds=0.1)
    assert "| graph, µs |" in " ".join(table.split())
    waits = next(line for line in table.splitlines() if line.startswith("| waits "))
    assert waits.split("|")[-3:-1] == [" " * len(cell) for cell in waits.split("|")[-3:-1]]
    assert "- waits: no CUDA graph: " in table
