"""Photographs that anyone may show, from installed packages: two portraits and seven pictures without a face.

matplotlib has Grace Hopper's portrait (US Navy, public domain); the others are scikit-image's, whose
documentation gives their terms. The astronaut Eileen Collins and the Hubble deep field (NASA) and the rocket
(SpaceX) are in the public domain, the rest are CC0.
"""

import shutil
from pathlib import Path

import numpy as np
import numpy.typing as npt
import PIL.Image

Pixels = npt.NDArray[np.uint8]

# The face in each portrait, xyxy in pixels: forehead to chin, without hair, hat and ears. Drawn by eye, on
# enlargements with a grid.
DRAWN_BOXES = {
    "grace_hopper.jpg": [180, 133, 355, 330],
    "astronaut.png": [181, 75, 272, 178],
}
# Functions of skimage.data. Not `camera` and `coins`: a photographer, and heads on the coins.
FACE_FREE = ("brick", "cat", "coffee", "grass", "gravel", "hubble_deep_field", "rocket")


def save_photos(folder: Path) -> list[Path]:
    """Writes the two portraits into the folder, as their packages have them; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    hopper, astronaut = (folder / name for name in DRAWN_BOXES)
    shutil.copyfile(_hopper(), hopper)
    PIL.Image.fromarray(_astronaut()).save(astronaut)
    return [hopper, astronaut]


def gray_portraits() -> dict[str, Pixels]:
    """The two portraits, by the names of `DRAWN_BOXES`: uint8 [H, W]."""
    with PIL.Image.open(_hopper()) as hopper:
        pictures = [hopper.convert("L"), PIL.Image.fromarray(_astronaut()).convert("L")]
    return {name: np.array(picture) for name, picture in zip(DRAWN_BOXES, pictures, strict=True)}


def face_free_photos() -> dict[str, Pixels]:
    """The photographs of `FACE_FREE` by name: uint8 [H, W], gray, or [H, W, 3], RGB."""
    import skimage.data

    return {name: getattr(skimage.data, name)() for name in FACE_FREE}


# Both packages are imported where they are used: that takes seconds, and `--help` must not wait for it.


def _hopper() -> Path:
    from matplotlib.cbook import get_sample_data

    return Path(str(get_sample_data("grace_hopper.jpg", asfileobj=False)))


def _astronaut() -> Pixels:
    import skimage.data

    pixels: Pixels = skimage.data.astronaut()  # type: ignore[no-untyped-call]  # skimage has no annotations
    return pixels
