"""`lensbox evaluate` and `lensbox stress`, as one types them."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from small_detectors import save_random_artifact
from torch import Tensor
from user_detectors import RedAndBlue

from lensbox.common.errors import ExitCode
from lensbox.common.main import main
from lensbox.export.pipeline import save_artifact
from lensbox.export.signing import make_keys, sign_file
from lensbox.model import DetectorConfig, FaceDetector, save_detector
from lensbox.train.evaluation.pictures import BoxSet, contact_sheet
from lensbox.train.stress.degradations import FACTORS
from lensbox.train.stress.stress_test import GAP, TILE


def test_evaluates_an_artifact_like_its_weights(
    faces_shard: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(0)
    detector = FaceDetector(DetectorConfig.named("small")).eval()
    save_detector(detector, tmp_path / "w.safetensors")
    save_artifact(detector, tmp_path / "d.pt")
    results = []
    for what, file in (("--weights", "w.safetensors"), ("--artifact", "d.pt")):
        result = tmp_path / f"{what}.json"
        arguments = ["--data", str(faces_shard), what, str(tmp_path / file), "--device", "cpu"]
        assert main(["evaluate", *arguments, "--json", str(result)]) == 0
        results.append(json.loads(result.read_text())["average_precision"])
    assert results[0] == pytest.approx(results[1], abs=1e-6, nan_ok=True)


def test_report(faces_shard: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    detector = FaceDetector(DetectorConfig.named("small"))
    save_detector(detector, tmp_path / "w.safetensors")
    arguments = ["--data", str(faces_shard), "--weights", str(tmp_path / "w.safetensors"), "--device", "cpu"]
    assert main(["evaluate", *arguments, "--report", str(tmp_path / "report")]) == 0
    with Image.open(tmp_path / "report" / "misses.png") as picture:
        assert picture.size[0] == 6 * 512
    with Image.open(tmp_path / "report" / "precision_recall.png") as picture:
        assert picture.size == (720, 600)
    assert (tmp_path / "report" / "false_alarms.png").is_file()
    assert "wrote" in capsys.readouterr().out


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
        ("--report", "nonsense", ExitCode.USAGE),
        ("--device", "abacus", ExitCode.USAGE),
    ],
)
def test_what_cannot_be_used_is_said_in_a_line(
    faces_shard: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, name: str, code: int
) -> None:
    (tmp_path / "nonsense").write_text("nonsense")
    value = name if option == "--device" else str(tmp_path / name)
    arguments = ["--data", str(faces_shard), "--device", "cpu", option, value]
    assert main(["evaluate", *arguments]) == code
    printed, said = capsys.readouterr()
    assert said.startswith("lensbox evaluate: ")
    assert Path(value).name in said
    assert printed == ""


def test_an_artifact_must_be_signed_if_asked_to(
    faces_shard: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    artifact, public_key = save_random_artifact(tmp_path), make_keys(tmp_path / "key.pem")
    arguments = ["--data", str(faces_shard), "--device", "cpu", "--public-key", str(public_key)]
    assert main(["evaluate", *arguments, "--artifact", str(artifact)]) == ExitCode.UNUSABLE
    assert f"{artifact}.sig" in capsys.readouterr().err
    sign_file(artifact, tmp_path / "key.pem")
    assert main(["evaluate", *arguments, "--artifact", str(artifact)]) == ExitCode.GOOD
    assert main(["evaluate", *arguments]) == ExitCode.USAGE
    assert "--public-key is for --artifact, got none" in capsys.readouterr().err


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
    assert "lensbox stress: " in said
    assert "must be a detector of faces, with a gray canvas of 256x256 pixels" in said


@pytest.fixture
def few_factors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lensbox.train.stress.stress_test.FACTORS", (FACTORS[0], FACTORS[-1]))


def test_command(few_factors: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    weights, picture = tmp_path / "w.safetensors", tmp_path / "new" / "stress.png"
    save_detector(FaceDetector(DetectorConfig.named("small")), weights)
    arguments = ["--output", str(picture), "--device", "cpu"]
    assert main(["stress", *arguments, "--weights", str(weights), "--threshold", "0.3"]) == 0
    printed = capsys.readouterr().out
    assert "| height of the face, canvas px | 128, 32, 16, 12, 8, 6, 4, 3 | none | none |" in printed
    assert "above 0.3 in 35 views of 7 photographs" in printed
    with Image.open(picture) as image:
        assert image.width == 8 * (2 * (TILE + 1) + GAP)

    assert main(["stress", *arguments, "--artifact", str(save_random_artifact(tmp_path))]) == 0
    assert "above 0.0104 in 35 views" in capsys.readouterr().out  # the artifact's own threshold
    assert main(["stress", *arguments, "--weights", str(tmp_path / "absent.safetensors")]) == 4
    assert "absent.safetensors" in capsys.readouterr().err
    assert main(["stress", *arguments, "--threshold", "1.5"]) == ExitCode.USAGE
    assert "'--threshold': must be between 0 and 1, got 1.5" in capsys.readouterr().err
    assert main(["stress", "--output", "limits.txt"]) == ExitCode.USAGE
    assert "'--output': must be a file that ends in .png, got limits.txt" in capsys.readouterr().err


def test_scoring_needs_no_package_that_only_training_needs() -> None:
    program = "import sys; sys.modules |= dict.fromkeys(('yaml', 'tqdm', 'pycocotools')); "
    modules = ("choices", "evaluation.pictures", "stress.stress_test")
    program += "; ".join(f"import lensbox.train.{module}" for module in modules)
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)


def test_a_picture_that_cannot_be_written_is_said_in_a_line(
    few_factors: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("mine")
    arguments = ["--device", "cpu", "--output", str(tmp_path / "file" / "s.png")]
    assert main(["stress", *arguments]) == ExitCode.USAGE
    assert "--output must be a file that can be written" in capsys.readouterr().err

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))  # as on a full disk
    try:
        assert main(["stress", "--device", "cpu", "--output", str(tmp_path / "s.png")]) == ExitCode.UNUSABLE
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    said = capsys.readouterr().err
    assert "lensbox stress: " in said
    assert "File too large" in said
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
