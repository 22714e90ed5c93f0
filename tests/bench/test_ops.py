"""`lensbox bench ops`: the checks of peers, the cases and figures, the exercise, and a tiny run."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from lensbox.bench import cli
from lensbox.bench.ops import benchmark, cases, extension, peers
from lensbox.bench.ops.benchmark import QUICK
from lensbox.bench.ops.cases import BOTH, FORWARD, OpsCase, all_cases
from lensbox.bench.ops.check import check_loss, check_nms, check_pairwise
from lensbox.bench.ops.exercise import (
    REPEATS,
    WARP,
    Warps,
    exercise_table,
    predicted_gain,
    run_exercise,
    valid_slots,
)
from lensbox.bench.ops.figures import RATIOS
from lensbox.bench.ops.inputs import LossBatch, NmsBatch, make_loss_batch, make_nms_batch, make_pairwise_batch
from lensbox.bench.ops.peers import NmsPeer, Peer
from lensbox.bench.ops.pytorch_losses import padded_loss
from lensbox.bench.ops.workload import loss_bytes, make_case
from lensbox.bench.report import Report
from lensbox.bench.runner import Row, UnavailableError, WrongAnswerError
from lensbox.bench.timing import Summary
from lensbox.common.errors import ExitCode
from lensbox.common.main import main

CPU = torch.device("cpu")


def batch_of(dtype: torch.dtype = torch.bfloat16) -> LossBatch:
    return make_loss_batch(6, 9, 0.4, dtype, torch.uint8, CPU)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("peer", peers.LOSS_PEERS + peers.TRANSFER_PEERS, ids=lambda peer: str(peer.name))
def test_peers_agree_with_the_reference(peer: Peer[peers.Loss], dtype: torch.dtype) -> None:
    if peer.slow_to_start or peer.name in peers.FLOORS:
        pytest.skip("compiles, or computes nothing")
    try:
        function = peer.load(CPU)
    except UnavailableError as error:
        pytest.skip(str(error))
    if not peer.gives_gradient:
        check_loss(function, batch_of(dtype), with_gradient=False)
    check_loss(function, batch_of(dtype), with_gradient=True)


def test_other_peers_agree_with_the_reference() -> None:
    for peer in peers.WEIGHTED_LOSS_PEERS:
        if not peer.slow_to_start:
            check_loss(peer.load(CPU), batch_of(torch.float32), with_gradient=True, weighted=True)
    for pairwise in peers.PAIRWISE_PEERS[:2]:
        check_pairwise(pairwise.load(CPU), make_pairwise_batch(5, 7, CPU))
    nms = peers.NMS_PEERS[0]
    check_nms(nms, nms.load(CPU), make_nms_batch(2, 100, CPU))


def _without_weight(batch: LossBatch, pred: Tensor) -> Tensor:
    return padded_loss(pred, batch.target)


def _with_wrong_gradient(batch: LossBatch, pred: Tensor) -> Tensor:
    right = padded_loss(pred, batch.target)
    return right.detach() + 1.01 * (right - right.detach())


@pytest.mark.parametrize(
    ("loss", "message", "weighted"),
    [
        (lambda batch, pred: padded_loss(pred, batch.target) + 0.01, "the loss is off by", False),
        (lambda batch, pred: padded_loss(pred, batch.target) * float("nan"), "off by nan", False),
        (lambda batch, pred: padded_loss(pred, batch.target)[None], r"the loss has shape \[1\]", False),
        (_with_wrong_gradient, "the gradient is off by", False),
        (_without_weight, "the loss is off by", True),
    ],
)
def test_a_wrong_loss_is_caught(loss: peers.Loss, message: str, weighted: bool) -> None:
    with pytest.raises(WrongAnswerError, match=message):
        check_loss(loss, batch_of(torch.float32), with_gradient=True, weighted=weighted)


def test_a_wrongly_kept_box_is_caught() -> None:
    def kept(batch: NmsBatch, _: object) -> Tensor:
        return torch.ones_like(batch.scores, dtype=torch.bool)

    peer = NmsPeer("keeps all", lambda _: lambda batch: None, kept=kept)
    with pytest.raises(WrongAnswerError, match="boxes are kept or dropped wrongly"):
        check_nms(peer, lambda batch: None, make_nms_batch(1, 100, CPU))


@pytest.mark.parametrize("name", ["article's kernel", "triton", "empty kernel"])
def test_cuda_peers_say_why_they_cannot_run_on_a_cpu(name: str) -> None:
    (peer,) = [peer for peer in peers.LOSS_PEERS if peer.name == name]
    with pytest.raises(UnavailableError, match=r"CUDA kernel|compiles for GPUs"):
        peer.load(CPU)


def test_bytes_to_be_moved() -> None:
    batch = make_loss_batch(2, 8, 1.0, torch.bfloat16, torch.uint8, CPU)
    assert loss_bytes(batch, False, False, "eager") == 16 * 4 + 16 * 8 + 4
    assert loss_bytes(batch, True, False, "eager") == 2 * (16 * 4 + 16 * 8) + 16 * 8 + 4
    assert loss_bytes(batch, False, False, peers.LENSBOX_JAGGED) == 16 * 4 + 8 * 3 + 16 * 8 + 4
    assert loss_bytes(batch, False, True, "eager") == 16 * 4 + 16 * 4 + 16 * 8 + 4
    assert loss_bytes(batch, True, False, "empty op") == 0


@pytest.mark.parametrize("quick", [True, False])
def test_cases_have_titles_and_groups_of_their_own(quick: bool) -> None:
    found = all_cases("cuda", quick, threads=2)
    assert len({case.title for case in found}) == len(found)
    assert {case.group for case in found} <= set(cases.GROUPS) == set(cli.GROUPS)
    assert {case.threads for case in found if case.group == "cpu"} == {1}


def test_lensbox_comes_first_and_floors_have_no_gradient() -> None:
    for kind, direction in (
        ("loss", FORWARD),
        ("weighted loss", BOTH),
        ("transfer", FORWARD),
        ("nms", FORWARD),
    ):
        case = make_case(OpsCase("group", kind, direction, "cpu", 2, 4))  # type: ignore[arg-type]
        assert case.ways[0].name == peers.LENSBOX
        assert case.ways[0].own
    names = {way.name for way in make_case(OpsCase("sizes", "loss", BOTH, "cpu", 2, 4)).ways}
    assert not names & {*peers.FLOORS, peers.PER_SAMPLE}


def test_each_ratio_has_its_case_and_is_looked_up() -> None:
    found = all_cases("cuda", quick=False, threads=1)
    for ratio in RATIOS:
        (case,) = [case for case in found if ratio.is_of(case)]
        report = Report("ops", [], print)
        assert ratio.figure(found, report).verdict == "not measured"
        for way, median in ((ratio.peer, 30.0), *((way, 2.0) for way in ratio.ours)):
            report.rows.append(Row(case.title, way, ratio.measure, Summary(median, median, median, 3)))
        assert ratio.figure(found, report).value == 15.0
        assert ratio.must < ratio.aim


@pytest.fixture
def small_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    """The usual cases at a small size, without the peers that build or compile."""

    def small(device: str, quick: bool, threads: int) -> list[OpsCase]:
        return [
            replace(case, batch=min(case.batch, 4), slots=min(case.slots, 8), cold=False)
            for case in all_cases(device, quick, threads)
        ]

    monkeypatch.setattr(benchmark, "all_cases", small)
    monkeypatch.setattr(benchmark, "copy_bandwidth", lambda device, threads: 1e10)
    monkeypatch.setattr(
        peers, "LOSS_PEERS", [peer for peer in peers.LOSS_PEERS if peer.name not in peers.FLOORS]
    )
    monkeypatch.setattr(benchmark, "QUICK", replace(QUICK, rounds=3, sample_seconds=1e-4))


@pytest.mark.usefixtures("small_cases")
def test_a_quick_run_writes_its_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "ops", "--device", "cpu", "--quick", "--output", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    for part in (
        "copy bandwidth",
        "loss, forward, [4, 8]",
        "torch.compile / ours",
        "exercise: it runs on a GPU",
    ):
        assert part in printed
    with (tmp_path / "out" / "ops.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    ours = [row for row in rows if row["way"] == "lensbox"]
    assert len(ours) == 7
    assert all(float(row["median_us"]) > 0 for row in ours)
    triton = [row for row in rows if row["way"] == "triton"]
    assert triton
    assert all(row["note"].startswith("not available: ") for row in triton)
    assert "| lensbox |" in (tmp_path / "out" / "ops.md").read_text()


@pytest.mark.usefixtures("small_cases")
def test_only_the_named_groups_run_within_the_time_limit(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["bench", "ops", "--device", "cpu", "--quick"]
    assert main([*command, "--only", "pairwise"]) == 0
    printed = capsys.readouterr().out
    assert "pairwise [4, 8]" in printed
    assert "loss, forward, [" not in printed
    assert main([*command, "--only", "cpu", "--time-limit", "0"]) == 0
    assert "nms [1, 8], CPU, 1 thread: the time limit of 0 s was over" in capsys.readouterr().out


@pytest.mark.usefixtures("small_cases")
def test_a_wrong_answer_of_our_own_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = peers.LOSS_PEERS[0].load(CPU)

    def shifted(batch: LossBatch, pred: Tensor) -> Tensor:
        loss = right(batch, pred)
        assert isinstance(loss, Tensor)
        return loss + 1

    eager = next(peer for peer in peers.LOSS_PEERS if peer.name == peers.EAGER)
    monkeypatch.setattr(peers, "LOSS_PEERS", [Peer("lensbox", lambda _: shifted), eager])
    assert main(["bench", "ops", "--device", "cpu", "--quick", "--only", "headline"]) == ExitCode.DEFECT
    printed = capsys.readouterr().out
    assert "  - lensbox: WRONG: the loss is off" in printed
    assert "\neager " in printed


@pytest.mark.parametrize(
    "arguments", [["ops", "--only", "nothing"], ["ops", "--threads", "0"], ["ops", "--time-limit=nan"]]
)
def test_usage_errors(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *arguments]) == ExitCode.USAGE
    assert "Usage: lensbox bench" in capsys.readouterr().err


@pytest.mark.parametrize("warps", ["mixed", "uniform"])
def test_valid_slots_have_their_share_and_warps(warps: Warps) -> None:
    valid = valid_slots(WARP * 8192, 0.25, warps)
    assert float(valid.double().mean()) == pytest.approx(0.25, abs=0.02)
    kinds = set(valid.view(-1, WARP).sum(1).tolist())
    assert (kinds == {0, WARP}) == (warps == "uniform")


@pytest.mark.parametrize(
    ("fill", "warps", "gain"),
    [(0.01, "uniform", 100), (0.01, "mixed", 3.636), (0.5, "mixed", 1), (1.0, "uniform", 1)],
)
def test_predicted_gains(fill: float, warps: Warps, gain: float) -> None:
    assert predicted_gain(fill, warps) == pytest.approx(gain, rel=1e-3)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Ninja is required to load C++ extensions", "Ninja is required to load C++ extensions"),
        (
            "Error building extension 'x': c++ a.cpp\na.cpp:3:1: error: no type\nend",
            "a.cpp:3:1: error: no type",
        ),
        ("", "no message"),
    ],
)
def test_a_failed_build_is_told_in_a_line(message: str, expected: str) -> None:
    assert extension._main_line(message) == expected


@pytest.mark.gpu
@pytest.mark.usefixtures("small_cases")
def test_a_quick_run_on_the_gpu(tmp_path: Path) -> None:
    assert main(["bench", "ops", "--device", "cuda", "--quick", "--output", str(tmp_path)]) == 0
    with (tmp_path / "ops.csv").open(newline="") as file:
        measures = {row["measure"] for row in csv.DictReader(file) if row["way"] == "lensbox"}
    assert measures >= {"call", "complete", "graph"}


@pytest.mark.gpu
def test_exercise_kernels_agree_with_the_reference_and_refuse_other_inputs() -> None:
    points = run_exercise(quick=True)  # raises WrongAnswerError
    assert len(exercise_table(points).lines) == len(points) > 0
    pred = torch.zeros(256, 4, dtype=torch.bfloat16, device="cuda")
    target = torch.zeros(256, 4, dtype=torch.uint8, device="cuda")
    assert max(REPEATS) == 256
    for size, repeats, message in (
        (256, 3, "repeats must be a power of two from 1 to 256, got 3"),
        (255, 1, "multiple of 256 slots, got 255"),
    ):
        with pytest.raises(RuntimeError, match=message):
            torch.ops.lensbox_bench.exercise(pred[:size], target[:size], repeats, True)
