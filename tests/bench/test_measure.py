"""Ways are checked, timed in turns and shown as a table; the groups of `lensbox bench ops`."""

from collections.abc import Callable
from functools import partial
from pkgutil import resolve_name

import pytest
import torch

from lensbox.bench import GROUPS
from lensbox.bench.measure import Case, UnavailableError, WrongAnswerError, run_case, time_table
from lensbox.bench.ops import letterbox, loss, nms
from lensbox.cli import timing
from lensbox.cli.main import main
from lensbox.cli.timing import Call, Times
from lensbox.common.errors import ExitCode
from lensbox.ops import padded_nms


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "_ROUNDS", 3)
    monkeypatch.setattr(timing, "_BLOCK_SECONDS", 1e-4)


def raising(error: Exception) -> Callable[[], Call]:
    def prepare() -> Call:
        raise error

    return prepare


def test_a_way_that_fails_has_a_note_and_the_others_have_times() -> None:
    ways: dict[str, Callable[[], Call]] = {
        "good": lambda: lambda: sum(range(100)),
        "wrong": raising(WrongAnswerError("off by 1")),
        "broken": raising(RuntimeError("no such op\nand a long trace")),
        "absent": raising(UnavailableError("no GPU")),
    }
    table, is_good = run_case(Case("case", "cpu", ways))
    assert is_good
    _, header, _, good, _, *notes = table.splitlines()[1:]
    assert header.startswith("| way ")
    assert good.startswith("| good |")
    assert notes == [
        "- wrong: WRONG: off by 1",
        "- broken: failed: RuntimeError: no such op",
        "- absent: not available: no GPU",
    ]
    ours = {"lensbox jagged": raising(WrongAnswerError(""))}
    assert not run_case(Case("case", "cpu", ways | ours))[1]


def test_tables_show_multiples_of_the_first_way() -> None:
    times = {"ours": Times(2e-6, 1e-6, 3e-6, 9), "theirs": Times(5e-4, 4e-4, 6e-4, 9)}
    graph = {"ours": Times(1e-6, 1e-6, 1e-6, 9)}
    notes = {"theirs": "no CUDA graph: it waits"}
    assert time_table("case", {"call": times, "graph": graph}, notes).splitlines() == [
        "### case",
        "",
        "| way    |         call, µs |    x |        graph, µs |    x |",
        "| ----   |             ---: | ---: |             ---: | ---: |",
        "| ours   | 2.00 (1.00-3.00) | 1.00 | 1.00 (1.00-1.00) | 1.00 |",
        "| theirs |    500 (400-600) |  250 |                  |      |",
        "",
        "- theirs: no CUDA graph: it waits",
    ]


@pytest.mark.gpu
def test_a_gpu_is_timed_in_graphs_too() -> None:
    values = torch.ones(1 << 20, device="cuda")
    ways: dict[str, Callable[[], Call]] = {
        "in a graph": lambda: partial(torch.add, values, 1),
        "waits": lambda: lambda: values[0].item(),
    }
    table, _ = run_case(Case("case", "cuda", ways), seconds=0.1)
    assert "| graph, µs |" in " ".join(table.split())
    waits = next(line for line in table.splitlines() if line.startswith("| waits "))
    assert waits.split("|")[-3:-1] == [" " * len(cell) for cell in waits.split("|")[-3:-1]]
    assert "- waits: no CUDA graph: " in table


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every case small."""
    for module, sizes in (
        (loss, {"BATCH": 4, "TRAINING_BATCH": 4, "SLOTS": 8, "TRAINING_SLOTS": 8}),
        (loss, {"SIZES": [(1, 8, None), (4, 8, 0.5)]}),
        (nms, {"SHAPES": dict.fromkeys(("cpu", "cuda"), ((1, 20), (3, 10)))}),
        (letterbox, {"WIDTH": 320, "HEIGHT": 180}),
    ):
        for name, value in sizes.items():
            monkeypatch.setattr(module, name, value)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("group", GROUPS)
def test_every_way_of_a_group_agrees_with_the_reference(
    group: str, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss.losses, "compiled", lambda function: function)
    titles = []
    for case in resolve_name(GROUPS[group])(device, False):
        titles.append(case.title)
        assert next(iter(case.ways)) == "lensbox"
        table, is_good = run_case(case, seconds=0.01)
        assert is_good
        assert "WRONG" not in table
        assert "failed" not in table
        assert all(f"\n| {way} " in table or f"\n- {way}: not available" in table for way in case.ways)
    assert len(set(titles)) == len(titles) > 0


@pytest.mark.usefixtures("small")
def test_a_quick_run_prints_tables_and_fails_for_a_wrong_answer_of_our_own(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["bench", "ops", "--device", device.type, "--quick", "--only"]
    assert main([*command, "headline"]) == ExitCode.GOOD
    printed = capsys.readouterr().out
    assert "### loss, forward + backward, [4, 8], |N(0,3)| boxes a sample, bfloat16/uint8" in printed
    assert "\n| lensbox" in printed
    assert "torch.compile" not in printed
    assert "NMS" not in printed  # which --only leaves out

    keep_one = {"lensbox": lambda boxes, scores: lambda: padded_nms(boxes, scores, 0.5, -1.0, 20, 1)}
    monkeypatch.setattr(nms, "PEERS", keep_one)
    assert main([*command, "nms"]) == ExitCode.DEFECT
    assert "- lensbox: WRONG: " in capsys.readouterr().out
