"""The command `lensbox evaluate` with detectors: weights, and artifacts of any canvas and reading."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from user_detectors import RedAndBlue

from lensbox.export.pipeline import save_artifact

Lensbox = Callable[..., tuple[str, str]]


def test_evaluates_an_artifact_like_its_weights(
    faces_shard: Path, shipped_path: Path, tmp_path: Path, lensbox: Lensbox
) -> None:
    results = []
    for options in ([], ["--artifact", shipped_path]):  # by default the shipped weights
        lensbox("evaluate", "--data", faces_shard, *options, "--json", tmp_path / "figures.json")
        results.append(json.loads((tmp_path / "figures.json").read_text())["average_precision"])
    assert results[0] == pytest.approx(results[1], abs=1e-6, nan_ok=True)


def test_evaluates_a_program_like_the_torchscript_file(
    faces_shard: Path, artifact_path: Path, program_path: Path, tmp_path: Path, lensbox: Lensbox
) -> None:
    results = []
    for path in (artifact_path, program_path):
        lensbox("evaluate", "--data", faces_shard, "--artifact", path, "--json", tmp_path / "figures.json")
        results.append(json.loads((tmp_path / "figures.json").read_text()))
    assert results[0]["average_precision"] == pytest.approx(results[1]["average_precision"], nan_ok=True)


COLORS = {"red": (250, 10, 10), "blue": (10, 10, 240)}


class Squeezed(RedAndBlue):
    """Stretches photographs to its canvas, where Lensbox would pad them."""

    def preprocess(self, images: list[Tensor], windows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        batches = [image.float().unsqueeze(0) for image in images]
        canvases = [torch.nn.functional.interpolate(one, [192, 320], mode="bilinear") for one in batches]
        sizes = [[one.shape[3] / 320.0, one.shape[2] / 192.0, 0.0, 0.0, 0.0, 0.0] for one in batches]
        return torch.cat(canvases).round().to(torch.uint8), torch.tensor(sizes)

    def restore(self, boxes: Tensor, geometry: Tensor) -> Tensor:
        return boxes * torch.cat([geometry[:, None, :2], geometry[:, None, :2]], dim=2)


@pytest.fixture(scope="module")
def artifacts(made_once: Callable[..., Path]) -> dict[str, Path]:
    """Export detectors of red and blue things that read the pixels of photographs as stored."""

    def save(path: Path) -> None:
        detector = RedAndBlue() if "colors" in path.name else Squeezed()
        detector.specification = replace(detector.specification, orientation="stored")
        save_artifact(detector, path)

    return {name: made_once(f"stored_{name}.pt", save) for name in ("colors", "squeezed")}


@pytest.mark.parametrize(("name", "orientation", "tall"), [("colors", "stored", 1), ("squeezed", "exif", 2)])
def test_artifacts_are_scored_on_turned_photographs(
    tmp_path: Path, artifacts: dict[str, Path], lensbox: Lensbox, name: str, orientation: str, tall: int
) -> None:
    """A red thing in a photograph of 320 x 192 pixels, or twice as tall, stored with EXIF orientation 6."""
    pixels = np.full((192 * tall, 320, 3), 110, np.uint8)
    pixels[60 * tall : 92 * tall, 200:232] = COLORS["red"]
    exif = Image.Exif()
    exif[0x0112] = 6
    photo, truth, result = (tmp_path / name for name in ("a.png", "truth.json", "r.json"))
    Image.fromarray(pixels).transpose(Image.Transpose.ROTATE_90).save(photo, exif=exif)
    box = [200, 60 * tall, 32, 32 * tall] if orientation == "exif" else [60, 320 - 232, 32, 32]
    content = {
        "images": [{"id": 1, "file_name": "a.png"}],
        "categories": [{"id": 1, "name": "red"}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": box}],
    }
    truth.write_text(json.dumps(content))

    def ap50(*options: object) -> tuple[str, str, str]:
        printed, said = lensbox("evaluate", "--data", truth, *options)
        (line,) = (line for line in printed.splitlines() if "IoU=0.50      | area=   all" in line)
        return line[-5:], printed, said

    artifact = ["--artifact", artifacts[name]]
    rule = [] if orientation == "stored" else ["--orientation", orientation]  # by default the artifact's own
    score, printed, said = ap50(*artifact, *rule, "--coco", "--json", result)
    assert score == "1.000"
    ends = [line.split()[-1] for line in printed.splitlines() if line.endswith(("red", "blue", "2 classes"))]
    assert ends == ["classes", "red", "blue"]
    figures = json.loads(result.read_text())
    assert {label: one["boxes"] for label, one in figures["classes"].items()} == {"red": 1, "blue": 0}
    red, blue = (figures["classes"][label]["average_precision"]["all>=8"] for label in ("red", "blue"))
    assert (red, blue, figures["average_precision"]["all>=8"]) == (1, None, 1)  # blue has no box
    assert "1 of 1 photographs have an EXIF orientation; their boxes are boxes of" in said
    assert f"(--orientation {orientation})" in said
    other = "exif" if orientation == "stored" else "stored"
    assert ap50(*artifact, "--orientation", other, "--coco")[0] != "1.000"
