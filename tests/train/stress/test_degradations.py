from typing import Any

import numpy as np
import pytest
import torch
from ellipses import bounds, ellipse

from lensbox.train.evaluation.average_precision import Array
from lensbox.train.stress.degradations import (
    FACTORS,
    Factor,
    Pixels,
    Portrait,
    Step,
    covered,
    darkened,
    flattened,
    noisy,
    place,
)

BOX = np.array([60.0, 50.0, 140.0, 170.0])


def bright_ellipse() -> Portrait:
    """A black picture with a white ellipse that fills `BOX`."""
    return Portrait("ellipse", ellipse(BOX.tolist(), 240, 300).byte().numpy(), BOX)


def extent(canvas: Pixels) -> Array:
    return bounds(torch.tensor(canvas) > 127).numpy()


@pytest.mark.parametrize("angle", [0, 30, 45, -60, 90, 135, 180])
def test_the_box_is_around_the_turned_face(angle: float) -> None:
    canvas, box = place(bright_ellipse(), Step("", height=100, angle=angle), (0, 0), 0)
    assert np.abs(extent(canvas) - box).max() <= 1.5
    assert np.abs((box[:2] + box[2:]) / 2 - 128).max() <= 0.6


@pytest.mark.parametrize("height", [160, 64, 24, 7])
@pytest.mark.parametrize("shift", [(0, 0), (-11, 11), (30, 2)])
def test_the_box_is_around_the_shrunk_and_moved_face(height: float, shift: tuple[int, int]) -> None:
    canvas, box = place(bright_ellipse(), Step("", height=height), shift, 0)
    assert canvas.shape == (256, 256)
    assert canvas.dtype == np.uint8
    assert box[3] - box[1] == pytest.approx(height, abs=0.02 * height + 0.1)
    assert np.abs(extent(canvas) - box).max() <= 1.0
    assert np.abs((box[:2] + box[2:]) / 2 - 128 - shift).max() <= 0.6


def test_a_shift_moves_pixels_and_changes_none() -> None:
    step = Step("", height=20, angle=25)
    here, _ = place(bright_ellipse(), step, (0, 0), 0)
    there, _ = place(bright_ellipse(), step, (5, -3), 0)
    assert np.array_equal(np.roll(here, (-3, 5), (0, 1)), there)


def test_a_turn_is_counter_clockwise() -> None:
    marked = bright_ellipse()
    marked.pixels[:, :] = 0
    marked.pixels[60:70, 95:105] = 255  # above the middle of the box
    x1, _, x2, _ = extent(place(marked, Step("", height=120, angle=90), (0, 0), 0)[0])
    assert (x1 + x2) / 2 < 100  # left of it


GRAYS = np.tile(np.arange(256, dtype=np.uint8), (256, 1))


def test_tones() -> None:
    assert np.array_equal(darkened(GRAYS, BOX, 0, factor=0.5)[0, [0, 100, 255]], [0, 50, 128])
    assert np.array_equal(flattened(GRAYS, BOX, 0, factor=0.5)[0, [0, 100, 255]], [64, 114, 192])
    assert np.array_equal(flattened(GRAYS, BOX, 0, factor=-1)[0, [1, 100, 255]], [255, 156, 1])


def test_noise_has_the_deviation_that_it_says_and_comes_from_the_seed() -> None:
    gray = np.full((256, 256), 128, np.uint8)
    found = noisy(gray, BOX, 3, sigma=20)
    assert found.std() == pytest.approx(20, rel=0.02)
    assert np.array_equal(found, noisy(gray, BOX, 3, sigma=20))
    assert not np.array_equal(found, noisy(gray, BOX, 4, sigma=20))


@pytest.mark.parametrize(
    ("side", "inside", "outside"),
    [("top", (52, 100), (90, 100)), ("bottom", (168, 100), (130, 100)), ("left", (110, 62), (110, 90))],
)
def test_a_bar_covers_a_share_of_the_box(side: str, inside: Any, outside: Any) -> None:
    white = np.full((256, 256), 255, np.uint8)
    found = covered(white, BOX, 0, side=side, share=0.25)
    assert found[inside] == 128
    assert found[outside] == 255
    box = tuple(slice(int(low), int(high)) for low, high in ((BOX[1], BOX[3]), (BOX[0], BOX[2])))
    assert (found[box] == 128).mean() == pytest.approx(0.25)
    assert np.array_equal(covered(white, BOX, 0, side=side, share=0.0), white)


@pytest.mark.parametrize("factor", FACTORS[1:], ids=lambda factor: factor.name)
def test_every_factor_starts_from_the_untouched_face(factor: Factor) -> None:
    face = bright_ellipse()
    face.pixels[60:80, 90:100] = 100  # by which a turned one can be told
    plain, box = place(face, Step(""), (0, 0), 0)
    first, first_box = place(face, factor.steps[0], (0, 0), 0)
    assert np.array_equal(first_box, box)
    assert np.abs(first.astype(int) - plain).max() <= (30 if factor.name == "JPEG quality" else 0)
    last, _ = place(face, factor.steps[-1], (0, 0), 0)
    assert not np.array_equal(last, first)
