from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lensbox.model import load_detector
from lensbox.train.evaluation.average_precision import ImageDetections
from lensbox.train.evaluation.pictures import FOUND_COLOR, IGNORED_COLOR
from lensbox.train.stress.degradations import Factor, Portrait, Step
from lensbox.train.stress.stress_test import (
    GAP,
    LINE,
    SHIFTS,
    TILE,
    FactorResult,
    Trial,
    false_alarm_line,
    sample_portraits,
    search_face_free,
    stress_sheet,
    stress_test,
    table,
)

SIZES = Factor("size", (Step("64", height=64), Step("10", height=10), Step("2", height=2)))
NOTHING = ImageDetections(np.zeros((0, 4)), np.zeros(0))


def square(name: str = "square") -> Portrait:
    """A black photograph with a white square for a face."""
    pixels = np.zeros((300, 300), np.uint8)
    pixels[50:200, 60:210] = 255
    return Portrait(name, pixels, np.array([60.0, 50.0, 210.0, 200.0]))


def bright_box(images: Tensor, score_threshold: float, iou_threshold: float) -> tuple[Tensor, Tensor, Tensor]:
    """Find a box in the corner that is never a face, then the box around the bright pixels of a canvas.

    The score of the second box is its height / 100.
    """
    boxes = torch.zeros(len(images), 2, 4)
    scores = torch.zeros(len(images), 2)
    for index, image in enumerate(images[:, 0]):
        rows, columns = ((image > 127).any(axis).nonzero()[:, 0] for axis in (1, 0))
        boxes[index, 0] = torch.tensor([0.0, 0.0, 30.0, 30.0])
        scores[index, 0] = 0.95
        if len(rows):
            boxes[index, 1] = torch.stack([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1])
            scores[index, 1] = len(rows) / 100
    return boxes, scores, torch.full((len(images),), 2)


def test_scores_are_those_of_the_boxes_on_the_face() -> None:
    (result,) = stress_test(bright_box, [square()], [SIZES], "cpu")
    assert [len(row) for row in result.trials] == [1, 1, 1]
    assert [row[0].score for row in result.trials] == pytest.approx([0.64, 0.10, 0.02], abs=0.011)
    assert all(len(row[0].scores) == len(SHIFTS) for row in result.trials)
    assert result.found(0.05).tolist() == [1, 1, 0]


def trials(*scores: float) -> list[Trial]:
    blank = np.zeros((256, 256), np.uint8)
    return [Trial(np.full(9, score), blank, np.zeros(4), NOTHING) for score in scores]


def test_limits_end_before_the_first_miss() -> None:
    factor = Factor("f", tuple(Step(label) for label in "abcd"))
    result = FactorResult(factor, [trials(0.9, 0.9), trials(0.8, 0.3), trials(0.1, 0.2), trials(0.9, 0.9)])
    assert (result.limit(0.5, 2), result.limit(0.5, 1)) == ("a", "b")
    assert (result.limit(0.05, 2), result.limit(0.95, 1)) == ("d", None)
    assert (result.limit(0.8, 2), result.limit(0.8, 1)) == ("a", "a")  # "b" has 0.8, and is not above it
    assert "| f | a, b, c, d | a | b |" in table([result], 0.5)
    assert "| f | a, b, c, d | none | none |" in table([result], 0.95)


def test_the_shown_placement_has_the_median_score() -> None:
    def some(images: Tensor, score_threshold: float, iou_threshold: float) -> tuple[Tensor, Tensor, Tensor]:
        boxes, scores, counts = bright_box(images, score_threshold, iou_threshold)
        scores[:, 1] = torch.arange(len(images)) / 10
        return boxes, scores, counts

    (result,) = stress_test(some, [square()], [Factor("size", SIZES.steps[:1])], "cpu")
    trial = result.trials[0][0]
    assert trial.score == pytest.approx(0.4)
    assert trial.detections.scores[1] == pytest.approx(0.4)
    middle = (trial.box[:2] + trial.box[2:]) / 2 - 128
    assert np.abs(middle - SHIFTS[4]).max() < 1


def test_every_detection_without_a_face_is_a_false_alarm() -> None:
    photos = {"gray": np.full((100, 300), 50, np.uint8), "color": np.full((400, 90, 3), 200, np.uint8)}
    gray, color = search_face_free(bright_box, photos, "cpu")
    assert gray.views.shape == (5, 256, 256)
    assert (gray.false_alarms(0.5), color.false_alarms(0.5)) == (5, 10)
    assert false_alarm_line([gray, color], 0.5) == (
        "False alarms above 0.5 in 10 views of 2 photographs without a face: 15 (gray 5, color 10)."
    )
    assert false_alarm_line([gray], 0.99).endswith("a face: 0.")


def test_views_are_the_whole_photograph_and_its_corners() -> None:
    pixels = np.zeros((100, 200), np.uint8)
    pixels[:60, :60], pixels[:60, -60:], pixels[-60:, :60], pixels[-60:, -60:] = 10, 20, 30, 40
    views = search_face_free(bright_box, {"p": pixels}, "cpu")[0].views
    assert [int(view.max()) for view in views[1:]] == [30, 40, 30, 40]  # the squares overlap
    assert [int(view[0, 0]) for view in views[1:]] == [10, 20, 30, 40]
    assert views[0, 0].max() == 0  # the letterbox's bar


def test_the_sheet_marks_found_and_missed_faces() -> None:
    results = stress_test(bright_box, [square(), square("other")], [SIZES], "cpu")
    free = search_face_free(bright_box, {"a": np.full((100, 100), 90, np.uint8)}, "cpu")
    sheet = stress_sheet(results, free, 0.05).convert("RGB")
    pair, top = 2 * (TILE + 1) + GAP, 2 * LINE

    def colors(left: int, top: int, size: int) -> set[Any]:
        counted = sheet.crop((left, top, left + size, top + size)).getcolors(1 << 16) or []
        return {color for _, color in counted} & {FOUND_COLOR, IGNORED_COLOR}

    for column, color in enumerate((FOUND_COLOR, FOUND_COLOR, IGNORED_COLOR)):
        assert colors(column * pair, top, TILE) == colors(column * pair + TILE + 1, top, TILE) == {color}
    # The false alarm in the corner.
    assert FOUND_COLOR in colors(0, sheet.height - pair, pair - GAP)


def test_the_shipped_weights_find_untouched_portraits_and_nothing_on_a_blank_canvas() -> None:
    detector = load_detector()
    untouched = Factor("none", (Step("as it is"),))
    (result,) = stress_test(detector.detect, sample_portraits(), [untouched], "cpu")
    assert result.found(0.5).tolist() == [2]
    blank = {str(level): np.full((256, 256), level, np.uint8) for level in (0, 128, 255)}
    assert [photo.false_alarms(0.5) for photo in search_face_free(detector.detect, blank, "cpu")] == [0, 0, 0]
