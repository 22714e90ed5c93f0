"""`lensbox bench ops`: inputs, the checks of peers, the cases and figures, the exercise, and a tiny run."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from box_reference import nms_reference as nms_by_loop
from torch import Tensor

from lensbox.bench import OPS_GROUPS
from lensbox.bench.ops import benchmark, peers
from lensbox.bench.ops.benchmark import QUICK
from lensbox.bench.ops.cases import BOTH, OpsCase, all_cases
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
from lensbox.bench.ops.inputs import LossBatch, make_loss_batch, make_nms_batch, make_pairwise_batch
from lensbox.bench.ops.peers import Function, Peer
from lensbox.bench.ops.pytorch_losses import padded_loss
from lensbox.bench.ops.reference import nms_reference
from lensbox.bench.ops.workload import loss_bytes, make_case
from lensbox.bench.report import Report
from lensbox.bench.runner import Row, UnavailableError, WrongAnswerError
from lensbox.bench.timing import Summary
from lensbox.common.errors import ExitCode
from lensbox.common.main import main

CPU = torch.device("cpu")


def batch_of(dtype: torch.dtype = torch.bfloat16) -> LossBatch:
    return make_loss_batch(6, 9, 0.4, dtype, torch.uint8, CPU)


@pytest.mark.parametrize("fill", [None, 0.0, 0.3, 1.0])
def test_padding_is_zero_and_at_the_end(fill: float | None) -> None:
    batch = make_loss_batch(9, 33, fill, torch.bfloat16, torch.uint8, CPU)
    rebuilt = torch.zeros_like(batch.target)
    for image, boxes in enumerate(batch.boxes):
        rebuilt[image, : len(boxes)] = boxes
    assert torch.equal(rebuilt, batch.target)
    assert (batch.target[..., 3] != 0).sum(1).tolist() == list(batch.counts)
    values, offsets = batch.packed
    assert torch.equal(values, torch.cat(batch.boxes))
    assert offsets.diff().tolist() == list(batch.counts)
    if fill in (0.0, 1.0):
        assert batch.valid == fill * 9 * 33


def test_counts_follow_the_article() -> None:
    counts = torch.tensor(make_loss_batch(20_000, 16, None, torch.float32, torch.uint8, CPU).counts).double()
    # P(|N(0, 3)| < 1) and the mean of floor(|N(0, 3)|), by the normal distribution's tables.
    assert float((counts == 0).double().mean()) == pytest.approx(0.2611, abs=0.01)
    assert float(counts.mean()) == pytest.approx(1.909, abs=0.04)


def test_nms_batches_have_one_answer() -> None:
    batch = make_nms_batch(2, 150, CPU)
    assert all(len(row.unique()) == 150 for row in batch.scores)
    assert bool((batch.boxes == batch.boxes.round()).all())
    kept = nms_reference(batch.boxes, batch.scores, 0.3)
    for image in range(2):
        expected = nms_by_loop(batch.boxes[image], batch.scores[image], 0.3, -1.0, 150, 150)
        assert kept[image].nonzero().flatten().tolist() == sorted(expected)
        assert len(expected) < 150


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("peer", peers.LOSS_PEERS + peers.TRANSFER_PEERS, ids=lambda peer: str(peer.name))
def test_losses_agree_with_the_reference(peer: Peer, dtype: torch.dtype) -> None:
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
        (lambda batch, pred: padded_loss(pred, batch.target), "the loss is off by", True),
    ],
)
def test_a_wrong_loss_is_caught(loss: Function, message: str, weighted: bool) -> None:
    with pytest.raises(WrongAnswerError, match=message):
        check_loss(loss, batch_of(torch.float32), with_gradient=True, weighted=weighted)


def test_a_wrongly_kept_box_is_caught() -> None:
    peer = Peer("all", lambda _: lambda batch: None, kept=lambda batch, _: torch.ones_like(batch.scores) > 0)
    with pytest.raises(WrongAnswerError, match="boxes are kept or dropped wrongly"):
        check_nms(peer, lambda batch: None, make_nms_batch(1, 100, CPU))


def test_bytes_to_be_moved() -> None:
    batch = make_loss_batch(2, 8, 1.0, torch.bfloat16, torch.uint8, CPU)
    assert loss_bytes(batch, False, False, "eager") == 16 * 4 + 16 * 8 + 4
    assert loss_bytes(batch, True, False, "eager") == 2 * (16 * 4 + 16 * 8) + 16 * 8 + 4
    assert loss_bytes(batch, False, False, peers.LENSBOX_JAGGED) == 16 * 4 + 8 * 3 + 16 * 8 + 4
    assert loss_bytes(batch, False, True, "eager") == 16 * 4 + 16 * 4 + 16 * 8 + 4
    assert loss_bytes(batch, True, False, "empty op") == 0


def test_cases_have_titles_of_their_own_and_lensbox_first() -> None:
    for quick in (True, False):
        found = all_cases("cuda", quick, threads=2)
        assert len({case.title for case in found}) == len(found)
        assert {case.group for case in found} <= set(OPS_GROUPS)
    for kind, direction in {(case.kind, case.direction) for case in found}:
        first = make_case(OpsCase("group", kind, direction, "cpu", 2, 4)).ways[0]
        assert first.name == peers.LENSBOX
        assert first.own
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
    kept = [peer for peer in peers.LOSS_PEERS if peer.name not in peers.FLOORS]
    monkeypatch.setattr(peers, "LOSS_PEERS", kept)
    monkeypatch.setattr(benchmark, "QUICK", replace(QUICK, rounds=3, sample_seconds=1e-4))


@pytest.mark.usefixtures("small_cases")
def test_a_quick_run_writes_its_files(device: torch.device, quick_run: Callable[..., Any]) -> None:
    printed, rows, markdown = quick_run("ops", benchmark, device=device.type)
    for part in ("copy bandwidth", "loss, forward, [4, 8]", "torch.compile / ours"):
        assert part in printed
    assert "| lensbox |" in markdown
    measures = {row["measure"] for row in rows if row["way"] == "lensbox"}
    if device.type == "cuda":
        assert measures >= {"call", "complete", "graph"}
        return
    assert measures == {"call"}
    assert "exercise: it runs on a GPU" in printed
    notes = {row["note"] for row in rows if row["way"] in ("triton", "article's kernel")}
    assert notes == {
        "not available: Triton compiles for GPUs",
        "not available: a CUDA kernel",
        "not available: forward only",
    }


@pytest.mark.usefixtures("small_cases")
def test_a_wrong_answer_of_our_own_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = peers.LOSS_PEERS[0].load(CPU)
    wrong = Peer("lensbox", lambda _: lambda batch, pred: right(batch, pred) + 1)
    eager = next(peer for peer in peers.LOSS_PEERS if peer.name == peers.EAGER)
    monkeypatch.setattr(peers, "LOSS_PEERS", [wrong, eager])
    assert main(["bench", "ops", "--device", "cpu", "--quick", "--only", "headline"]) == ExitCode.DEFECT
    printed = capsys.readouterr().out
    assert "  - lensbox: WRONG: the loss is off" in printed
    assert "\neager " in printed
    assert "pairwise" not in printed  # which --only leaves out


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


@pytest.mark.gpu
def test_exercise_kernels_agree_with_the_reference_and_refuse_other_inputs() -> None:
    points = run_exercise("cuda", quick=True)  # raises WrongAnswerError
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
