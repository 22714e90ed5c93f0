"""`lensbox evaluate --artifact` of detectors from outside Lensbox."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from user_detectors import RedAndBlue

from lensbox.common.errors import ExitCode
from lensbox.common.main import main
from lensbox.export.artifact_writer import save_artifact
from lensbox.train.evaluation.pictures import BoxSet, contact_sheet

COLORS = {"red": (250, 10, 10), "blue": (10, 10, 240)}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six photographs of 320 x 192 pixels with squares of 24: a red one in each, a blue one in every second,
    of which the bluest is labelled red."""
    folder = tmp_path_factory.mktemp("squares")
    (folder / "images").mkdir()
    lines = []
    for index in range(6):
        pixels = np.full((192, 320, 3), 110, np.uint8)
        squares = [("red", 20 + 24 * index, 40), *([("blue", 200, 20 + 20 * index)] if index % 2 else [])]
        lines += [f"{index}.png", str(len(squares))]
        for name, x, y in squares:
            wrong = name == "blue" and index == 5
            pixels[y : y + 24, x : x + 24] = (0, 0, 255) if wrong else COLORS[name]
            lines.append(f"{x} {y} 24 24 0 0 0 0 0 0 {'red' if wrong else name}")
        Image.fromarray(pixels).save(folder / "images" / f"{index}.png")
    (folder / "squares_bbx_gt.txt").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("colors") / "colors.pt"
    save_artifact(RedAndBlue(), path)
    return path


def test_average_precision_of_each_class(
    data: Path, artifact: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report, result = tmp_path / "report", tmp_path / "figures.json"
    arguments = ["--data", str(data), "--artifact", str(artifact), "--device", "cpu", "--coco"]
    assert main(["evaluate", *arguments, "--report", str(report), "--json", str(result)]) == 0
    figures = json.loads(result.read_text())
    by_class = {name: values["average_precision"]["all>=8"] for name, values in figures["classes"].items()}
    assert list(by_class) == ["red", "blue"]
    assert {name: values["boxes"] for name, values in figures["classes"].items()} == {"red": 7, "blue": 2}
    # Six of the seven red labels are of red squares. Of three blue detections the best is a false alarm.
    assert by_class["red"] == pytest.approx(6 / 7, abs=0.01)
    assert by_class["blue"] == pytest.approx(2 / 3, abs=0.01)
    assert figures["average_precision"]["all>=8"] == pytest.approx((by_class["red"] + by_class["blue"]) / 2)
    assert figures["coco"]["AP50"] == pytest.approx(
        sum(values["coco"]["AP50"] for values in figures["classes"].values()) / 2
    )
    lines = capsys.readouterr().out.splitlines()
    ends = [line.split()[-1] for line in lines if line.endswith(("red", "blue", "2 classes"))]
    assert ends == ["classes", "red", "blue"] * 2
    with Image.open(report / "misses.png") as picture:
        assert picture.size == (6 * 640, 384)
        assert len(picture.convert("RGB").getcolors(1 << 20) or []) > 10


def test_names_stand_at_the_boxes() -> None:
    images = torch.zeros(1, 3, 40, 60)
    boxes = torch.tensor([[[5.0, 5, 50, 35]]])
    plain, named = (
        contact_sheet(images, [BoxSet(boxes, (255, 0, 0), names)], zoom=2) for names in ([], [["car"]])
    )
    difference = np.asarray(named).astype(int) - np.asarray(plain)
    rows, columns, _ = np.nonzero(difference)
    assert 10 <= rows.min() <= rows.max() < 30
    assert 10 <= columns.min() <= columns.max() < 50


class Squeezed(RedAndBlue):
    """Stretches photographs to its canvas, where Lensbox would pad them."""

    def preprocess(self, images: list[Tensor], windows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        canvases: list[Tensor] = []
        sizes: list[list[float]] = []
        for image in images:
            stretched = torch.nn.functional.interpolate(
                image.float().unsqueeze(0), [192, 320], mode="bilinear"
            )
            canvases.append(stretched[0].round().to(torch.uint8))
            sizes.append([image.shape[2] / 320.0, image.shape[1] / 192.0, 0.0, 0.0, 0.0, 0.0])
        return torch.stack(canvases), torch.tensor(sizes)

    def restore(self, boxes: Tensor, geometry: Tensor) -> Tensor:
        return boxes * torch.cat([geometry[:, None, :2], geometry[:, None, :2]], dim=2)


def test_a_detector_with_a_preprocess_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    pixels = np.full((384, 320, 3), 110, np.uint8)  # things of 24 x 48 are squares on the canvas
    lines = ["tall.png", "2"]
    for name, x, y in (("red", 40, 80), ("blue", 200, 240)):
        pixels[y : y + 48, x : x + 24] = COLORS[name]
        lines.append(f"{x} {y} 24 48 0 0 0 0 0 0 {name}")
    Image.fromarray(pixels).save(tmp_path / "images" / "tall.png")
    (tmp_path / "squares_bbx_gt.txt").write_text("\n".join(lines) + "\n")
    save_artifact(Squeezed(), tmp_path / "a.pt")
    arguments = ["--data", str(tmp_path), "--artifact", str(tmp_path / "a.pt"), "--device", "cpu"]
    assert main(["evaluate", *arguments, "--json", str(tmp_path / "figures.json")]) == ExitCode.GOOD
    figures = json.loads((tmp_path / "figures.json").read_text())
    by_class = {name: values["average_precision"]["all>=8"] for name, values in figures["classes"].items()}
    assert by_class == {"red": 1, "blue": 1}


def test_stress_is_for_detectors_of_faces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_artifact(RedAndBlue(), tmp_path / "a.pt")
    arguments = ["--output", str(tmp_path / "s.png"), "--artifact", str(tmp_path / "a.pt"), "--device", "cpu"]
    assert main(["stress", *arguments]) == ExitCode.UNUSABLE
    said = capsys.readouterr().err
    assert said.startswith("lensbox stress: ")
    assert "must be a detector of faces, with a gray canvas of 256x256 pixels" in said
