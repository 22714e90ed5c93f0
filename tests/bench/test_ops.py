"""`lensbox bench ops`: the checks of peers, the cases, and a tiny run."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from lensbox.bench import OPS_GROUPS
from lensbox.bench.measure import Case, WrongAnswerError, run_case
from lensbox.bench.ops import cases, letterbox
from lensbox.bench.ops.cases import GROUPS
from lensbox.bench.ops.inputs import LossBatch, NmsBatch, make_loss_batch, make_nms_batch
from lensbox.bench.ops.peers import Function, Peer, padded_loss
from lensbox.bench.ops.reference import check_loss, check_nms, nms_reference
from lensbox.cli import timing
from lensbox.cli.main import main
from lensbox.common.errors import ExitCode
from lensbox.ops import PaddedDetections, padded_nms

CPU = torch.device("cpu")


def _with_wrong_gradient(batch: LossBatch, pred: Tensor) -> Tensor:
    right = padded_loss(pred, batch.target)
    return right.detach() + 1.01 * (right - right.detach())


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda batch, pred: padded_loss(pred, batch.target) + 0.01, "the loss is off by"),
        (lambda batch, pred: padded_loss(pred, batch.target)[None], r"the loss has shape \[1\]"),
        (_with_wrong_gradient, "the gradient is off by"),
    ],
)
def test_a_wrong_loss_is_caught(loss: Function, message: str) -> None:
    batch = make_loss_batch(6, 9, 0.4, torch.float32, torch.uint8, CPU)
    with pytest.raises(WrongAnswerError, match=message):
        check_loss(loss, batch, with_gradient=True)


def test_wrongly_kept_boxes_are_caught() -> None:
    batch = make_nms_batch(2, 100, CPU)
    kept = nms_reference(batch.boxes, batch.scores, batch.iou_threshold).view(-1)
    check_nms(lambda batch: kept.nonzero().flatten(), batch)  # as torchvision answers
    with pytest.raises(WrongAnswerError, match="boxes are kept or dropped wrongly"):
        check_nms(lambda batch: torch.arange(200), batch)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every case small, and its samples few."""
    for module, sizes in (
        (cases, {"BATCH": 4, "TRAINING_BATCH": 4, "SLOTS": 8, "TRAINING_SLOTS": 8}),
        (cases, {"SIZES": [(1, 8, None), (4, 8, 0.5)]}),
        (cases, {"NMS_SHAPES": dict.fromkeys(("cpu", "cuda"), ((1, 20), (3, 10)))}),
        (letterbox, {"WIDTH": 320, "HEIGHT": 180}),
        (timing, {"_ROUNDS": 2, "_BLOCK_SECONDS": 1e-4}),
    ):
        for name, value in sizes.items():
            monkeypatch.setattr(module, name, value)


def without_compilers(found: Iterator[Case]) -> Iterator[Case]:
    for case in found:
        yield replace(case, ways=[way for way in case.ways if way.name != "torch.compile"])


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("group", OPS_GROUPS)
def test_every_way_of_a_group_agrees_with_the_reference(group: str, device: torch.device) -> None:
    titles = []
    for case in without_compilers(GROUPS[group](device, False)):
        titles.append(case.title)
        result = run_case(case, seconds=0.01)
        assert case.ways[0].name == "lensbox"
        assert case.ways[0].own
        assert set(result.times["call"]) | set(result.notes) == {way.name for way in case.ways}
        assert {way.name for way in case.ways if way.own} <= set(result.times["call"])
        for note in result.notes.values():
            assert note.startswith("not available: ")
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
    assert "- torch.compile: not available: left out by --quick: it compiles" in printed
    assert "NMS" not in printed  # which --only leaves out

    def keep_one(batch: NmsBatch) -> PaddedDetections:
        return padded_nms(batch.boxes, batch.scores, batch.iou_threshold, -1.0, 20, 1)

    monkeypatch.setattr(cases, "NMS_PEERS", [Peer("lensbox", lambda _: keep_one)])
    assert main([*command, "nms"]) == ExitCode.DEFECT
    assert "- lensbox: WRONG: " in capsys.readouterr().out
