"""`lensbox evaluate`, as one types it."""

import json
from pathlib import Path

import pytest
import torch
from PIL import Image
from small_detectors import save_random_artifact

from lensbox.common.errors import ExitCode
from lensbox.common.main import main
from lensbox.export.artifact_writer import save_artifact
from lensbox.export.signing import make_keys, sign_file
from lensbox.model import DetectorConfig, FaceDetector, save_detector
from lensbox.runtime.artifact import Artifact
from lensbox.runtime.artifact_loading import load_artifact


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
    assert value in said
    assert printed == ""


def test_an_artifact_is_trusted_only_if_asked_to(
    faces_shard: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    artifact, seen = save_random_artifact(tmp_path), []

    def load(
        path: Path, device: torch.device, *, trusted: bool = False, public_key: Path | None = None
    ) -> Artifact:
        seen.append((trusted, public_key))
        return load_artifact(path, device)

    monkeypatch.setattr("lensbox.runtime.artifact_loading.load_artifact", load)
    arguments = ["--data", str(faces_shard), "--device", "cpu"]
    assert main(["evaluate", *arguments, "--artifact", str(artifact)]) == ExitCode.GOOD
    assert main(["evaluate", *arguments, "--artifact", str(artifact), "--trusted"]) == ExitCode.GOOD
    assert seen == [(False, None), (True, None)]
    assert main(["evaluate", *arguments, "--trusted"]) == ExitCode.USAGE
    assert "--trusted is for --artifact, got none" in capsys.readouterr().err


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


def test_running_out_of_memory_is_not_called_bad_data(
    faces_shard: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_args: object, **_kwargs: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("lensbox.train.evaluation.evaluate.detect_all", broken)
    with pytest.raises(torch.OutOfMemoryError):
        main(["evaluate", "--data", str(faces_shard), "--device", "cpu"])
