"""The reference: how much rounding alone changes, and boxes in another form."""

import copy
from collections.abc import Callable

import pytest
import torch
from small_detectors import Changed, RedAndBlue
from torch import Tensor

from lensbox.export.verify.comparer import Comparer
from lensbox.export.verify.reference import Reference, tolerance_of
from lensbox.runtime.detect.detection import detections_in

THRESHOLDS = (0.04, 0.3)


# With the first one, all scores lie near 0.5, so that rounding decides among many.
@pytest.mark.parametrize("sharpness", [1e-5, 12.0])
def test_accepts_rounded_weights_and_rejects_others(sharpness: float) -> None:
    reference = Reference(RedAndBlue(sharpness=sharpness).eval(), (0.0, 0.3), batches=(1,))

    def faults(change: Callable[[Tensor], Tensor]) -> list[str]:
        changed = copy.deepcopy(reference.detector)
        with torch.no_grad():
            for weight in changed.parameters():  # type: ignore[attr-defined]
                weight += change(weight)
            answers = [changed.detect(one[None], *reference.thresholds) for one in reference.canvases]
        actual = list(map(detections_in, answers))
        expected, comparer = reference.found(reference.thresholds), Comparer(reference, "float32", "cpu", 0)
        difference = comparer.difference(expected, actual, reference.thresholds)
        return comparer.faults(difference, reference.thresholds)

    assert faults(lambda weight: 1e-6 * weight * torch.randn(weight.shape)) == []
    assert faults(lambda weight: 0.1 * weight.std(correction=0) * torch.randn(weight.shape))


def test_a_detector_that_finds_nothing_is_compared_at_a_score_threshold_of_0() -> None:
    assert Reference(RedAndBlue().eval(), (1.0, 0.3), batches=(1,)).thresholds == (0.0, 0.3)


def test_scores_of_large_logits_tie_at_one() -> None:
    reference = Reference(RedAndBlue(sharpness=1e4).eval(), (0.0, 0.3), batches=(1,))
    assert reference.unstable_share(reference.thresholds) > tolerance_of("float32", "cpu", 0).unmatched


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda boxes: boxes / 1000, "boxes must be in pixels of the canvas, not in 0..1"),
        (lambda boxes: boxes[..., [2, 3, 0, 1]], "boxes must be x1, y1, x2, y2, not center and size"),
    ],
)
def test_warns_of_boxes_in_another_form(
    change: Callable[[Tensor], Tensor], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    detector = Changed(lambda found: {**found, "boxes": change(found["boxes"])})
    Reference(detector.eval(), THRESHOLDS, batches=(1,))
    assert message in caplog.text


def test_pictures_of_the_user_are_compared_with_a_slow_detector_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lensbox.export.verify.reference._MOST_OPERATIONS", 0)
    pictures = [torch.full((3, 192, 320), level, dtype=torch.uint8) for level in range(9)]
    reference = Reference(RedAndBlue().eval(), THRESHOLDS, pictures)
    assert (len(reference.canvases), reference.batches) == (9 + 7, (1, 2, 7))
    assert torch.equal(reference.canvases[:9], torch.stack(pictures))
