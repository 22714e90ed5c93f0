"""`lensbox bench ops`: every group of cases, a tiny run, and wrong answers, caught before they are timed."""

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from programs import Lensbox

from lensbox.bench import GROUPS
from lensbox.bench.measure import WrongAnswerError, run_case
from lensbox.bench.ops import letterbox, loss, nms
from lensbox.cli import bench as timing
from lensbox.common.errors import ExitCode
from lensbox.ops import padded_nms


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every case small."""
    for group, rows in loss.GROUPS.items():
        small_rows = [(min(count, 4), 8, *others) for count, _, *others in rows[:2]]
        monkeypatch.setitem(loss.GROUPS, group, small_rows)
    for module, sizes in (
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
    module = importlib.import_module(f"lensbox.bench.ops.{GROUPS[group]}")
    for case in module.cases(group, device, False):
        assert next(iter(case.ways)) == "lensbox"
        table, is_good = run_case(case, seconds=0.01)
        assert is_good
        assert "WRONG" not in table
        assert all(f"\n| {way} " in table or f"\n- {way}: not available" in table for way in case.ways)


@pytest.mark.usefixtures("small")
def test_a_quick_run_prints_tables_and_fails_for_a_wrong_answer_of_our_own(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, lensbox: Lensbox
) -> None:
    command = ["bench", "ops", "--device", device.type, "--quick", "--only"]
    printed, _ = lensbox(*command, "headline")
    assert "\n| lensbox" in printed
    assert "NMS" not in printed  # which --only leaves out
    keep_one = {"lensbox": lambda boxes, scores: lambda: padded_nms(boxes, scores, 0.5, -1.0, 20, 1)}
    monkeypatch.setattr(nms, "PEERS", keep_one)
    assert "- lensbox: WRONG: " in lensbox(*command, "nms", code=ExitCode.DEFECT)[0]


CANVAS = torch.full((1, 1, 256, 256), 100, dtype=torch.uint8)
PRED, TARGETS = loss.make_loss_batch(
    6, 9, 0.4, torch.device("cpu"), (torch.float32, torch.uint8), weighted=False
)
LOSS, GRADIENT = loss.loss_reference(PRED, *TARGETS)
BOXES, SCORES = nms.make_boxes(2, 100, torch.device("cpu"))
KEPT = nms.nms_reference(BOXES, SCORES).view(-1).nonzero().flatten()

of_resize = partial(letterbox.check, CANVAS, "torch float32, antialias")
of_ours = partial(letterbox.check, CANVAS, "lensbox")
of_loss = partial(loss.check, PRED, TARGETS, True, "a way")
of_nms = partial(nms.check, BOXES, SCORES, "torchvision")


@pytest.mark.parametrize(
    ("check", "right", "wrong", "message"),
    [
        (of_resize, CANVAS + 2, CANVAS - 3, "differs by up to 3 gray levels, 2 are allowed"),
        (of_ours, CANVAS, CANVAS + 1, "differs by up to 1 gray levels, 0 are allowed"),
        (of_loss, (LOSS, GRADIENT), (LOSS + 0.01, GRADIENT), "the loss is off by"),
        (of_loss, (LOSS, GRADIENT), (LOSS[None], GRADIENT), r"the loss has shape \[1\]"),
        (of_loss, (LOSS, GRADIENT), (LOSS, 1.01 * GRADIENT), "the gradient is off by"),
        (of_nms, KEPT, torch.arange(200), "boxes are kept or dropped wrongly"),
    ],
)
def test_a_wrong_answer_is_caught(check: Callable[[Any], None], right: Any, wrong: Any, message: str) -> None:
    check(right)
    with pytest.raises(WrongAnswerError, match=message):
        check(wrong)
