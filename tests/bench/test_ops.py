"""`lensbox bench ops`: the checks of answers, every group of cases, and a tiny run."""

from collections.abc import Callable
from pkgutil import resolve_name

import pytest
import torch
from torch import Tensor

from lensbox.bench import GROUPS
from lensbox.bench.measure import WrongAnswerError, run_case
from lensbox.bench.ops import letterbox, loss, nms
from lensbox.cli import timing
from lensbox.cli.main import main
from lensbox.common.errors import ExitCode
from lensbox.ops import padded_nms

Change = Callable[[Tensor], Tensor]


def _with_wrong_gradient(right: Tensor) -> Tensor:
    return right.detach() + 1.01 * (right - right.detach())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda right: right + 0.01, "the loss is off by"),
        (lambda right: right[None], r"the loss has shape \[1\]"),
        (_with_wrong_gradient, "the gradient is off by"),
    ],
)
def test_a_wrong_loss_is_caught(change: Change, message: str) -> None:
    batch = loss.make_loss_batch(6, 9, 0.4, torch.device("cpu"), (torch.float32, torch.uint8))
    with pytest.raises(WrongAnswerError, match=message):
        loss.prepare(
            lambda batch: lambda pred: change(loss.losses.padded_loss(pred, *batch.padded)), batch, True
        )


def test_wrongly_kept_boxes_are_caught() -> None:
    boxes, scores = nms.make_boxes(2, 100, torch.device("cpu"))
    kept = nms.nms_reference(boxes, scores).view(-1).nonzero().flatten()
    nms.prepare(lambda *_: lambda: kept, boxes, scores)  # as torchvision answers
    with pytest.raises(WrongAnswerError, match="boxes are kept or dropped wrongly"):
        nms.prepare(lambda *_: lambda: torch.arange(200), boxes, scores)


def test_a_wrong_canvas_is_caught() -> None:
    expected = torch.full((1, 1, 256, 256), 100, dtype=torch.uint8)
    letterbox.prepare(lambda: lambda: expected + 2, expected, letterbox.ROUNDING)
    with pytest.raises(WrongAnswerError, match="differs by up to 3 gray levels, 2 are allowed"):
        letterbox.prepare(lambda: lambda: expected - 3, expected, letterbox.ROUNDING)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every case small."""
    for module, sizes in (
        (loss, {"BATCH": 4, "TRAINING_BATCH": 4, "SLOTS": 8, "TRAINING_SLOTS": 8}),
        (loss, {"SIZES": [(1, 8, None), (4, 8, 0.5)]}),
        (nms, {"SHAPES": dict.fromkeys(("cpu", "cuda"), ((1, 20), (3, 10)))}),
        (letterbox, {"WIDTH": 320, "HEIGHT": 180}),
        (timing, {"_ROUNDS": 2, "_BLOCK_SECONDS": 1e-4}),
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
