"""`lensbox bench detector --artifact`."""

import csv
import dataclasses
from pathlib import Path

import pytest
import torch
from user_detectors import RedAndBlue

from lensbox.bench.check import WrongAnswerError
from lensbox.bench.detector import artifact_times
from lensbox.common.errors import ExitCode
from lensbox.common.main import main
from lensbox.export.artifact_writer import save_artifact


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("colors") / "colors.pt"
    save_artifact(RedAndBlue(), path)
    return path


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    effort = dataclasses.replace(artifact_times._QUICK, rounds=3, sample_seconds=1e-4)
    monkeypatch.setattr(artifact_times, "_QUICK", effort)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_any_detector_is_timed(
    device: str, artifact: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--artifact", str(artifact), "--device", device, "--quick", "--output", str(tmp_path)]
    assert main(["bench", "detector", *arguments]) == ExitCode.GOOD
    printed = capsys.readouterr().out
    assert f"red_and_blue, colors.pt, canvas 320x192x3, on {device}" in printed
    with (tmp_path / "artifact.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    ways = [artifact_times.CANVASES, *([artifact_times.CAPTURED] if device == "cuda" else [])]
    ways.append(artifact_times.IMAGES)
    assert [(row["way"], int(row["batch"])) for row in rows] == [(way, n) for n in (1, 4) for way in ways]
    for row in rows:
        per_second = int(row["batch"]) * 1e6 / float(row["median_us"])
        assert float(row["images_per_second"]) == pytest.approx(per_second, rel=0.01)
        assert row["note"] == ""
    assert "| canvases, plain calls | 1 |" in (tmp_path / "artifact.md").read_text()


@pytest.mark.usefixtures("short")
def test_one_batch_size(artifact: Path, tmp_path: Path) -> None:
    arguments = ["--artifact", str(artifact), "--quick", "--output", str(tmp_path), "--batch", "3"]
    assert main(["bench", "detector", *arguments]) == ExitCode.GOOD
    with (tmp_path / "artifact.csv").open(newline="") as file:
        assert [row["batch"] for row in csv.DictReader(file)] == ["3", "3"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--artifact", "a.pt", "--weights", "w"], "--weights and --artifact must not be given together"),
        (["--device", "cuda"], "--device cuda must come with --artifact"),
    ],
)
def test_options_that_do_not_go_together(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "detector", *arguments]) == ExitCode.USAGE
    assert message in capsys.readouterr().err


def test_a_missing_artifact_is_said_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "detector", "--artifact", str(tmp_path / "absent.pt")]) == ExitCode.UNUSABLE
    assert "there is no file absent.pt in" in capsys.readouterr().err


def test_a_captured_detector_must_answer_as_plain_calls_do() -> None:
    answer = torch.tensor([[[1.0, 2, 3, 4]]]), torch.tensor([[0.5]]), torch.tensor([1])
    artifact_times._require_same(answer, answer)
    with pytest.raises(WrongAnswerError, match="boxes differ by 1 px"):
        artifact_times._require_same((answer[0] + 1, *answer[1:]), answer)
    with pytest.raises(WrongAnswerError, match=r"\[0\] are found, \[1\] by plain calls"):
        artifact_times._require_same((*answer[:2], answer[2] - 1), answer)
