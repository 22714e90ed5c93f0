"""The command `lensbox evaluate`."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from short_runs import small_detector
from torch import Tensor
from user_detectors import RedAndBlue

from lensbox.common.errors import ExitCode
from lensbox.export.pipeline import save_artifact
from lensbox.export.signing import make_keys, sign_file
from lensbox.model import FaceDetector, save_detector

Lensbox = Callable[..., tuple[str, str]]


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    save_detector(small_detector(0), tmp_path / "w.safetensors")
    return tmp_path / "w.safetensors"


def test_evaluates_an_artifact_like_its_weights(
    faces_shard: Path, weights: Path, tmp_path: Path, lensbox: Lensbox
) -> None:
    save_artifact(small_detector(0).eval(), tmp_path / "d.pt")
    results = []
    for option, file in (("--weights", weights), ("--artifact", tmp_path / "d.pt")):
        result = tmp_path / "figures.json"
        lensbox("evaluate", "--data", faces_shard, option, file, "--json", result)
        results.append(json.loads(result.read_text())["average_precision"])
    assert results[0] == pytest.approx(results[1], abs=1e-6, nan_ok=True)


@pytest.mark.parametrize(
    ("option", "name", "code"),
    [
        ("--weights", "absent.safetensors", ExitCode.BAD_INPUT),
        ("--weights", "nonsense", ExitCode.BAD_INPUT),
        ("--checkpoint", "absent.pt", ExitCode.BAD_INPUT),
        ("--checkpoint", "nonsense", ExitCode.BAD_INPUT),
        ("--artifact", "absent.pt", ExitCode.UNUSABLE),
        ("--artifact", "nonsense", ExitCode.UNUSABLE),
        ("--data", "absent", ExitCode.BAD_INPUT),
        ("--json", "nonsense/figures.json", ExitCode.USAGE),
        ("--json", ".", ExitCode.USAGE),
        ("--device", "abacus", ExitCode.USAGE),
    ],
)
def test_an_unusable_file_is_reported_in_a_line(
    faces_shard: Path, tmp_path: Path, lensbox: Lensbox, option: str, name: str, code: int
) -> None:
    (tmp_path / "nonsense").write_text("nonsense")
    value = name if option == "--device" else tmp_path / name
    printed, said = lensbox("evaluate", "--data", faces_shard, option, value, code=code)
    assert said.startswith("lensbox evaluate: ")
    assert Path(value).name in said
    assert printed == ""


def test_an_artifact_must_be_signed_if_asked_to(
    faces_shard: Path, random_path: Path, tmp_path: Path, lensbox: Lensbox
) -> None:
    artifact, public_key = tmp_path / "detector.pt", make_keys(tmp_path / "key.pem")
    shutil.copy(random_path, artifact)
    arguments = ["evaluate", "--data", faces_shard, "--public-key", public_key]
    _, said = lensbox(*arguments, "--artifact", artifact, code=ExitCode.UNUSABLE)
    assert f"{artifact}.sig" in said
    sign_file(artifact, tmp_path / "key.pem")
    lensbox(*arguments, "--artifact", artifact)
    _, said = lensbox(*arguments, code=ExitCode.USAGE)
    assert "--public-key is for --artifact, got none" in said
    _, said = lensbox("evaluate", "--data", faces_shard, "--ops", artifact, code=ExitCode.USAGE)
    assert "--ops is for --artifact, got none" in said


COLORS = {"red": (250, 10, 10), "blue": (10, 10, 240)}


def write_squares(folder: Path, height: int, photos: list[list[tuple[str, int, int, int]]]) -> None:
    """Write gray photographs, 320 wide, with colored things (name, x, y, height), 24 wide, and their labels.

    A thing named "wrong" is bluest and labelled red.
    """
    (folder / "images").mkdir()
    lines = []
    for index, things in enumerate(photos):
        pixels = np.full((height, 320, 3), 110, np.uint8)
        lines += [f"{index}.png", str(len(things))]
        for name, x, y, tall in things:
            pixels[y : y + tall, x : x + 24] = COLORS.get(name, (0, 0, 255))
            lines.append(f"{x} {y} 24 {tall} 0 0 0 0 0 0 {'red' if name == 'wrong' else name}")
        Image.fromarray(pixels).save(folder / "images" / f"{index}.png")
    (folder / "squares_bbx_gt.txt").write_text("\n".join(lines) + "\n")


def test_average_precision_of_each_class(tmp_path: Path, lensbox: Lensbox) -> None:
    photos = [[("red", 20 + 24 * index, 40, 24)] for index in range(6)]
    for index, name in ((1, "blue"), (3, "blue"), (5, "wrong")):
        photos[index].append((name, 200, 20 + 20 * index, 24))
    write_squares(tmp_path, 192, photos)
    save_artifact(RedAndBlue(), tmp_path / "colors.pt")
    result = tmp_path / "figures.json"
    arguments = ["--data", tmp_path, "--artifact", tmp_path / "colors.pt", "--coco"]
    printed, _ = lensbox("evaluate", *arguments, "--json", result)
    figures = json.loads(result.read_text())
    by_class = {name: values["average_precision"]["all>=8"] for name, values in figures["classes"].items()}
    assert list(by_class) == ["red", "blue"]
    assert {name: values["boxes"] for name, values in figures["classes"].items()} == {"red": 7, "blue": 2}
    # Six of the seven red labels are of red squares. Of three blue detections the best is a false alarm.
    assert by_class["red"] == pytest.approx(6 / 7, abs=0.01)
    assert by_class["blue"] == pytest.approx(2 / 3, abs=0.01)
    assert figures["average_precision"]["all>=8"] == pytest.approx((by_class["red"] + by_class["blue"]) / 2)
    assert figures["coco"]["AP50"] == pytest.approx((by_class["red"] + by_class["blue"]) / 2, abs=0.01)
    ends = [line.split()[-1] for line in printed.splitlines() if line.endswith(("red", "blue", "2 classes"))]
    assert ends == ["classes", "red", "blue"]


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


def test_a_detector_with_a_preprocess_of_its_own(tmp_path: Path, lensbox: Lensbox) -> None:
    # Things of 24 x 48 are squares on the canvas.
    write_squares(tmp_path, 384, [[("red", 40, 80, 48), ("blue", 200, 240, 48)]])
    artifact, result = tmp_path / "a.pt", tmp_path / "figures.json"
    save_artifact(Squeezed(), artifact)
    lensbox("evaluate", "--data", tmp_path, "--artifact", artifact, "--json", result)
    classes = json.loads(result.read_text())["classes"]
    assert {name: figures["average_precision"]["all>=8"] for name, figures in classes.items()} == {
        "red": 1,
        "blue": 1,
    }


def test_detections_that_are_not_finite_are_refused(
    faces_shard: Path, lensbox: Lensbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    def detect(self: FaceDetector, images: Tensor, *_: float) -> tuple[Tensor, ...]:
        ones = torch.ones(len(images), 1)
        return torch.full((len(images), 1, 4), torch.nan), ones, ones[:, 0].long()

    monkeypatch.setattr(FaceDetector, "detect", detect)
    _, said = lensbox("evaluate", "--data", faces_shard, code=ExitCode.BAD_INPUT)
    assert "boxes of detections must be finite numbers [n, 4], got nan" in said


def test_scoring_needs_no_package_that_only_training_needs() -> None:
    program = "import sys; sys.modules |= dict.fromkeys(('yaml', 'pycocotools')); "
    program += "import lensbox.train.evaluation.command"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)
