"""`lensbox bench ops` from its arguments to its files, on cases small enough for a test."""

import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from lensbox.bench import benchmark, measurement
from lensbox.bench.cases import Case, all_cases
from lensbox.bench.cli import EXIT_WRONG
from lensbox.bench.inputs import LossBatch
from lensbox.bench.measurement import QUICK
from lensbox.bench.peers import eager, registry
from lensbox.bench.peers.peer import Loss, Peer
from lensbox.bench.timing import Sampler, graph_sampler
from lensbox.bench.workload import Workload
from lensbox.common.errors import ExitCode
from lensbox.common.main import main


@pytest.fixture
def small_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    """The usual cases at a small size, with the peers that build or compile nothing."""

    def small(device: str, quick: bool, threads: int) -> list[Case]:
        return [
            replace(case, batch=min(case.batch, 4), slots=min(case.slots, 8), cold=False)
            for case in all_cases(device, quick, threads)
        ]

    monkeypatch.setattr(benchmark, "all_cases", small)
    monkeypatch.setattr(benchmark, "_copy_bandwidth", lambda device, threads: 1e10)
    peers = [peer for peer in registry.LOSS_PEERS if peer.name not in registry.FLOORS]
    monkeypatch.setattr(registry, "LOSS_PEERS", peers)
    monkeypatch.setattr(benchmark, "QUICK", replace(QUICK, rounds=3, sample_seconds=1e-4))


@pytest.mark.usefixtures("small_cases")
def test_a_quick_run_writes_tables_and_a_plot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "ops", "--device", "cpu", "--quick", "--output", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    for part in (
        "copy bandwidth",
        "loss, forward, [4, 8]",
        "nms [1, 8]",
        "torch.compile / ours",
        "not available",
    ):
        assert part in printed
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"headline.png", "ops.csv", "results.md"}
    with (tmp_path / "out" / "ops.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    ours = [row for row in rows if row["peer"] == "lensbox"]
    assert {row["group"] for row in ours} == {"headline", "weighted", "transfer", "cpu", "pairwise"}
    assert all(float(row["median_us"]) > 0 for row in ours)
    # Who cannot run is listed with the reason.
    triton = [row for row in rows if row["peer"] == "triton"]
    assert triton
    assert all(row["note"].startswith("not available: ") for row in triton)
    assert "| lensbox |" in (tmp_path / "out" / "results.md").read_text()


@pytest.mark.usefixtures("small_cases")
def test_only_the_named_groups_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "ops", "--device", "cpu", "--quick", "--only", "pairwise"]) == 0
    printed = capsys.readouterr().out
    assert "pairwise [4, 8]" in printed
    assert "loss, forward, [" not in printed


@pytest.mark.parametrize("limit", ["nan", "inf", "-1"])
def test_a_time_limit_is_a_time(limit: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "ops", f"--time-limit={limit}"]) == ExitCode.USAGE
    assert f"'--time-limit': must be finite and at least 0, got {limit}" in capsys.readouterr().err


@pytest.mark.usefixtures("small_cases")
def test_after_the_time_limit_nothing_is_begun(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "ops", "--device", "cpu", "--quick", "--only", "cpu", "--time-limit", "0"]) == 0
    assert "nms [1, 8], CPU, 1 thread: the time limit of 0 s was over" in capsys.readouterr().out


def _shifted(_: torch.device) -> Loss:
    def loss(batch: LossBatch, pred: Tensor) -> Tensor:
        return eager.padded_loss(pred, batch.target) + 1

    return loss


def _broken(_: torch.device) -> Loss:
    raise RuntimeError("no such op\nand a long trace")


@pytest.mark.usefixtures("small_cases")
@pytest.mark.parametrize("name", ["lensbox", "lensbox jagged"])
@pytest.mark.parametrize(
    ("load", "note"), [(_shifted, "WRONG: the loss is off"), (_broken, "failed: RuntimeError")]
)
def test_a_wrong_answer_of_our_own_is_not_timed_and_fails_the_run(
    load: Callable[[torch.device], Loss],
    note: str,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    peers = [Peer(name, load), Peer("eager", eager.load_loss)]
    monkeypatch.setattr(registry, "LOSS_PEERS", peers)
    assert main(["bench", "ops", "--device", "cpu", "--quick", "--only", "headline"]) == EXIT_WRONG
    printed = capsys.readouterr().out
    assert f"  - {name}: {note}" in printed
    assert "\neager " in printed
    assert "long trace" not in printed


def test_without_a_gpu_cuda_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["bench", "ops", "--device", "cuda"]) == ExitCode.USAGE
    assert "PyTorch finds no NVIDIA GPU" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["ops", "--only", "nothing"], ["ops", "--threads", "0"]])
def test_usage_errors(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *arguments]) == ExitCode.USAGE
    assert "Usage: lensbox bench" in capsys.readouterr().err


def test_threads_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def fails(_: Case) -> Workload:
        seen.append(torch.get_num_threads())
        raise RuntimeError("out of memory")

    monkeypatch.setattr(measurement, "make_workload", fails)
    before = torch.get_num_threads()
    with pytest.raises(RuntimeError, match="out of memory"):
        measurement.run_case(Case("cpu", "nms", "forward", "cpu", 1, 4, threads=before + 1), QUICK, 1e9)
    assert seen == [before + 1]
    assert torch.get_num_threads() == before


@pytest.mark.usefixtures("small_cases")
def test_a_case_that_cannot_be_set_up_is_noted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(_: Case) -> Workload:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(measurement, "make_workload", fails)
    assert main(["bench", "ops", "--device", "cpu", "--quick", "--only", "pairwise"]) == 0
    assert "Note: pairwise [4, 8], CPU, 1 thread: out of memory" in capsys.readouterr().out


@pytest.mark.gpu
@pytest.mark.usefixtures("small_cases")
def test_a_quick_run_on_the_gpu(tmp_path: Path) -> None:
    assert main(["bench", "ops", "--device", "cuda", "--quick", "--output", str(tmp_path)]) == 0
    with (tmp_path / "ops.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["peer"] == "lensbox" and row["device"] == "cuda"]
    assert {row["measure"] for row in rows} >= {"call", "complete", "graph"}


@pytest.mark.gpu
def test_a_graph_runs_every_iteration_and_is_timed() -> None:
    total = torch.zeros(1 << 20, device="cuda")
    ran: list[int] = []

    def run(index: int) -> Tensor:
        ran.append(index)
        return total.add_(1)

    sampler = graph_sampler(run, 7)
    assert ran[-7:] == list(range(7))
    before = float(total[0])
    assert sampler() > 0
    assert float(total[0]) - before == 14  # two replays, of which the second is timed


@pytest.mark.gpu
def test_a_graph_keeps_its_inputs() -> None:
    total = torch.zeros((), device="cuda")

    def sampler_with_inputs_of_its_own() -> Sampler:
        # Large enough for a segment of its own, which goes back to the device once nothing holds it.
        ones = torch.ones(1 << 24, device="cuda")
        return graph_sampler(lambda index: total.copy_(ones[-1]), 1)

    sampler = sampler_with_inputs_of_its_own()
    torch.cuda.empty_cache()
    assert sampler() > 0
    assert float(total) == 1
