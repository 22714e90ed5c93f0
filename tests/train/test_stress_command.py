"""`lensbox stress`, as one types it."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from damaged_files import with_bit_flipped
from PIL import Image
from small_detectors import save_random_artifact

from lensbox.common.errors import ExitCode
from lensbox.common.main import main
from lensbox.model import DetectorConfig, FaceDetector, save_detector
from lensbox.train.stress.degradations import FACTORS
from lensbox.train.stress.stress_test import GAP, TILE


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


def test_a_damaged_artifact_is_said_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    artifact = save_random_artifact(tmp_path)
    content = artifact.read_bytes()
    artifact.write_bytes(with_bit_flipped(content, len(content) // 2))
    arguments = ["--output", str(tmp_path / "s.png"), "--device", "cpu", "--artifact", str(artifact)]
    assert main(["stress", *arguments]) == ExitCode.UNUSABLE
    said = capsys.readouterr().err
    assert said.startswith("lensbox stress: ")
    assert str(artifact) in said


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
    assert said.startswith("lensbox stress: ")
    assert "File too large" in said
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
