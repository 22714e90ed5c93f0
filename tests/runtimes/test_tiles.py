"""Python and C++ find the same in the tiles of a photograph, to the bit."""

import json
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
from runner_answers import answer, run
from user_detectors import RedAndBlue

from lensbox.export.pipeline import save_artifact
from lensbox.runtime import TileSpec, load_artifact
from lensbox.runtime.detect.detection import detections_to_json


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a detector of two classes and a photograph of many small squares."""
    folder = tmp_path_factory.mktemp("tiles")
    save_artifact(RedAndBlue(), folder / "colors.pt")
    generator = np.random.default_rng(0)
    picture = PIL.Image.new("RGB", (1501, 803), (114, 114, 114))
    for index in range(60):
        x, y = (int(value) for value in generator.integers(0, (1490, 790)))
        picture.paste([(255, 0, 0), (0, 0, 255)][index % 2], (x, y, x + 24, y + 24))
    picture.save(folder / "large.jpg", quality=92)
    return folder


@pytest.mark.parametrize(("text", "tiles"), [("auto", TileSpec()), ("333,0.4", TileSpec(333, 0.4))])
def test_tiles_find_the_same_to_the_bit(folder: Path, text: str, tiles: TileSpec) -> None:
    artifact = load_artifact(folder / "colors.pt")
    photo = artifact.read_photo(folder / "large.jpg", full_size=True)
    python = artifact.detect_image(photo, 0.3, 0.4, tiles)
    assert len(python.boxes) > 40
    asked = ("--image", folder / "large.jpg", "--score-threshold", 0.3, "--iou-threshold", 0.4)
    (cpp,) = answer("detect", "--artifact", folder / "colors.pt", *asked, "--tiles", text)["images"]
    wanted = detections_to_json(python, artifact.classes)
    found = cpp["detections"]
    assert [one["label"] for one in found] == [one["label"] for one in wanted]
    for key in ("box", "score"):
        ours, theirs = (np.array([one[key] for one in side], np.float32) for side in (found, wanted))
        np.testing.assert_array_equal(ours, theirs)


def test_the_largest_tile_is_the_whole_photograph(folder: Path) -> None:
    asked = ("--artifact", folder / "colors.pt", "--image", folder / "large.jpg", "--tiles", 2**63 - 1)
    assert "detections" in answer("detect", *asked)["images"][0]


def test_too_many_tiles_are_an_error_of_the_file(folder: Path) -> None:
    refused = run(
        "detect", "--artifact", folder / "colors.pt", "--image", folder / "large.jpg", "--tiles", "2"
    )
    assert refused.returncode == 4
    assert (
        "tiles must be at most 4096, got more of size 2" in json.loads(refused.stdout)["images"][0]["error"]
    )
