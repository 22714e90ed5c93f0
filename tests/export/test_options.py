"""Options of `lensbox export`: combinations that are rejected, and names of output files."""

import sys
from pathlib import Path

import pytest
from programs import Lensbox

from lensbox.common.errors import ExitCode
from lensbox.export.options import FORMATS, output_paths


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--format onnx,tflite", "must be of torchscript, program, aoti, onnx, got 'tflite'"),
        ("--format onnx --dtype float16", "--dtype must be float32 for --format onnx"),
        ("--format torchscript,onnx --trace", "--trace is not for --format onnx"),
        ("--format aoti --batch 1,8", "--batch must be one size for --format aoti, got 1,8"),
        (f"--size large --weights {__file__}", "--size must come without --model and --weights"),
        ("--option a=1", "--option must come with --model"),
        ("--runner missing", "must be the program lensbox_runner, got missing"),
        ("--format program,aoti", "--format must not have two formats of one suffix, got program, aoti"),
        ("--self-test-from-pictures", "--self-test-from-pictures must come with --pictures"),
        ("--output detector.onnx", "got detector.onnx: give --format onnx, or a name that ends in .pt"),
        ("--output detector.pt2", "got detector.pt2: give --format program, or a name that ends in .pt"),
        ("--output detector.pt --format onnx", "give --format torchscript, or a name that ends in .onnx"),
    ],
)
def test_usage_errors(
    options: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lensbox: Lensbox
) -> None:
    monkeypatch.chdir(tmp_path)
    _, said = lensbox("export", *options.split(), code=ExitCode.USAGE)
    assert message in " ".join(said.split())
    assert not list(tmp_path.iterdir())


def test_accepts_any_other_name() -> None:
    for name, kind in FORMATS.items():
        for output in (f"x{kind.suffix}", "x", "v1.2", "x.bin"):
            assert output_paths(Path(output), [name]) == {name: Path(output)}
    both = output_paths(Path("v1.2"), ["torchscript", "onnx"])
    assert list(map(str, both.values())) == ["v1.2.pt", "v1.2.onnx"]
    both = output_paths(Path("face.pt"), ["torchscript", "onnx"])
    assert list(map(str, both.values())) == ["face.pt", "face.onnx"]


def test_python_3_14_writes_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lensbox: Lensbox
) -> None:
    monkeypatch.chdir(tmp_path)
    made = "lensbox.export.pipeline.make_files"
    monkeypatch.setattr(made, lambda detector, paths, options: {paths["program"]: b"a program"})
    monkeypatch.setattr(sys, "version_info", (3, 14, 0, "final", 0))
    lensbox("export")
    assert (tmp_path / "artifacts" / "detector.pt2").read_bytes() == b"a program"
