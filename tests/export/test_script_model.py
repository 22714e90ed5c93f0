"""The export command, as its users run it."""

import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import lensbox.export.cli
from lensbox.common.errors import ExitCode
from lensbox.common.main import main
from lensbox.export.options import SUFFIXES, foreign_suffix, output_paths
from lensbox.model import DetectorConfig, FaceDetector, save_detector, weights_sha256
from lensbox.runtime.loading import load_artifact

SCRIPT = Path(lensbox.export.cli.__file__).with_name("script_model.py")


def run_script(*arguments: object, cwd: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def test_untrained_weights_become_an_artifact(tmp_path: Path) -> None:
    torch.manual_seed(5)
    detector = FaceDetector(DetectorConfig.named("small"))
    weights = tmp_path / "weights.safetensors"
    save_detector(detector, weights)
    result = run_script("--weights", weights, "--score-threshold", "0.3", "--no-parity", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"{Path('artifacts', 'detector.pt')}\n"
    assert "loading the weights" in result.stderr
    assert "self-test with" in result.stderr
    assert "Warning" not in result.stderr
    artifact = load_artifact(tmp_path / "artifacts" / "detector.pt")
    assert artifact.self_test().passed
    assert artifact.metadata.weights_sha256 == weights_sha256(detector)
    assert artifact.metadata.score_threshold == 0.3
    assert [file.name for file in (tmp_path / "artifacts").iterdir()] == ["detector.pt"]


def test_the_weights_own_threshold_is_the_default(tmp_path: Path) -> None:
    torch.manual_seed(5)
    weights = tmp_path / "w.safetensors"
    figures = {"figures": '{"recommended_threshold": 0.0123}'}
    save_detector(FaceDetector(DetectorConfig.named("small")), weights, figures)
    output = tmp_path / "a.pt"
    arguments = ["export", "--weights", str(weights), "--output", str(output), "--no-parity"]
    assert main(arguments) == 0
    assert load_artifact(output).metadata.score_threshold == 0.01
    assert main([*arguments, "--score-threshold", "0"]) == 0
    assert load_artifact(output).metadata.score_threshold == 0


def test_a_detector_whose_scores_all_tie_is_exported_with_a_warning(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    detector = FaceDetector(DetectorConfig(stem_width=4, widths=(4, 4, 4, 4), pyramid_width=4))
    for parameter in detector.parameters():
        torch.nn.init.zeros_(parameter)
    save_detector(detector, tmp_path / "w.safetensors")
    output = tmp_path / "a.pt"
    assert (
        main(["export", "--weights", str(tmp_path / "w.safetensors"), "--output", str(output), "--no-parity"])
        == 0
    )
    assert "scores lie so close together that rounding decides" in capfd.readouterr().err
    assert load_artifact(output).self_test().passed


@pytest.mark.parametrize(
    ("arguments", "promised", "suffix"),
    [
        (["--output", "detector.onnx"], "onnx", ".pt"),
        (["--output", "detector.pt2"], "aoti", ".pt"),
        (["--output", "detector.pt", "--format", "onnx"], "torchscript", ".onnx"),
    ],
)
def test_a_name_that_promises_another_format(
    arguments: list[str], promised: str, suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", *arguments]) == ExitCode.USAGE
    error = " ".join(capsys.readouterr().err.split())
    assert f"--output must not end as the files of another format, got {arguments[1]}: " in error
    assert f": give --format {promised}, or a name that ends in {suffix}" in error


def test_any_other_name_may_be_given() -> None:
    for name, suffix in SUFFIXES.items():
        for output in (f"x{suffix}", "x", "v1.2", "x.bin"):
            assert foreign_suffix(Path(output), [name]) is None
            assert output_paths(Path(output), [name]) == {name: Path(output)}
    assert foreign_suffix(Path("x.onnx"), ["torchscript", "onnx"]) is None
    assert foreign_suffix(None, ["torchscript"]) is None


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_bad_weights(
    value: float, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    detector = FaceDetector(DetectorConfig.named("small"))
    next(detector.parameters()).data.view(-1)[3] = value
    weights = tmp_path / "w.safetensors"
    save_detector(detector, weights)
    assert main(["export", "--weights", str(weights), "--output", str(tmp_path / "a.pt")]) == 4
    err = capfd.readouterr().err
    assert "w.safetensors: the weights must be finite, got 1 of" in err
    assert "Traceback" not in err
    assert [file.name for file in tmp_path.iterdir()] == ["w.safetensors"]


def test_weights_that_overflow_end_with_one_sentence(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    detector = FaceDetector(DetectorConfig.named("small"))
    next(detector.parameters()).data.fill_(1e38)
    weights = tmp_path / "w.safetensors"
    save_detector(detector, weights)
    assert main(["export", "--weights", str(weights), "--output", str(tmp_path / "a.pt")]) == 3
    assert "cannot be exported: it finds nothing in any picture" in capfd.readouterr().err


def test_a_full_disk_leaves_the_old_artifact_and_a_message(tmp_path: Path) -> None:
    output = tmp_path / "a.pt"
    output.write_bytes(b"old")
    result = subprocess.run(
        [sys.executable, str(SCRIPT), "--output", str(output), "--no-parity"],
        capture_output=True,
        text=True,
        check=False,
        # No file may grow beyond this: writing fails half-way, as on a full disk.
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)),
    )
    assert result.returncode == 3, result.stderr
    assert f"{output}: cannot be written: File too large" in result.stderr
    assert "Traceback" not in result.stderr
    assert output.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [output]


@pytest.mark.parametrize(
    "line",
    ["choosing a self-test", pytest.param("loading the file back", marks=pytest.mark.exhaustive)],
)
def test_sigterm_leaves_nothing(line: str, tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--output", str(tmp_path / "a.pt")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for text in process.stderr:
            if text.startswith(line):
                break
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
    assert not list(tmp_path.iterdir())
