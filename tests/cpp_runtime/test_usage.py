"""The command line: wrong ones exit with 2 and name the option; --version, --help, info and bench."""

import importlib.metadata
import json
import zipfile
from pathlib import Path

import programs
import pytest
import torch
from built_runner import built_runner, runner_onnxruntime
from runner_answers import answer, refusal

MODEL = ["--artifact", "unused.pt"]
DETECT = ["detect", *MODEL]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ([], "subcommand"),
        (["predict", "--image", "x.png"], "no subcommand predict"),
        ([*DETECT, "--image", "a.jpg", "--treshold", "1"], "--treshold"),
        (DETECT, "one of --image and --raw"),
        ([*DETECT, "--image", "x.png", "--raw", "8x8", "gray8"], "got both"),
        ([*DETECT, "--raw", "640", "gray8"], "WIDTHxHEIGHT"),
        ([*DETECT, "--raw", "8x8", "gray8", "--recursive"], "--recursive requires --image"),
        ([*DETECT, "--image", "x.png", "--score-threshold", "1.5"], "--score-threshold"),
        ([*DETECT, "--image", "x.png", "--iou-threshold", "nan"], "got nan"),
        ([*DETECT, "--image", "x.png", "--threads", "0"], "--threads"),
        ([*DETECT, "--image", "x.png", "--orientation", "1"], "--orientation"),
        *(
            ([*DETECT, "--image", "x.png", "--tiles", text], "--tiles")
            for text in ("big", "0", "512,1", "512,")
        ),
        (["bench", *MODEL, "--batch-sizes", "1,0"], "--batch-sizes"),
        (["bench", *MODEL, "--seconds", "nan"], "got nan"),
        (["loss", *MODEL, "--predictions", "a.json"], "--targets"),
        (["loss", *MODEL, "--predictions", "-", "--targets", "-"], "stdin"),
    ],
)
def test_wrong_usage(arguments: list[str], part: str) -> None:
    done = programs.run(built_runner(), *arguments, code=2)
    assert done.stdout == ""
    assert part in done.stderr


def test_refuses_an_unknown_device(random_path: Path) -> None:
    assert "device" in refusal(2, "selftest", "--artifact", random_path, "--device", "mps")


def test_version_and_help() -> None:
    onnxruntime = runner_onnxruntime()
    libraries = f"libtorch {torch.__version__.split('+')[0]}, "
    libraries += f"onnxruntime {onnxruntime}" if onnxruntime else "without onnxruntime"
    printed = programs.run(built_runner(), "--version").stdout
    assert printed == f"lensbox_runner {importlib.metadata.version('lensbox')} ({libraries})\n"
    for words in (["--help"], ["detect", "--help"]):
        assert "Exit codes" in programs.run(built_runner(), *words).stdout


def test_info_needs_no_op_library(random_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LENSBOX_OPS_LIBRARY", raising=False)
    document = json.loads(programs.run(built_runner(), "info", "--artifact", random_path).stdout)
    about_runner = document.pop("runner")
    with zipfile.ZipFile(random_path) as archive:
        (entry,) = (name for name in archive.namelist() if name.endswith("/extra/lensbox.json"))
        assert document == json.loads(archive.read(entry))
    assert about_runner == {
        "version": importlib.metadata.version("lensbox"),
        "libtorch": torch.__version__.split("+")[0],
        "device": "cpu",
        "cuda_available": torch.cuda.is_available(),
    }


@pytest.mark.parametrize(
    "options",
    [[], *(pytest.param(["--device", "cuda", *more], marks=pytest.mark.gpu) for more in ([], ["--capture"]))],
)
def test_bench(random_path: Path, options: list[str]) -> None:
    """Check the structure of the document, not the figures."""
    asked = ["--batch-sizes", "1,3", "--callers", "2", "--seconds", "0.01", *options]
    document = answer("bench", "--artifact", random_path, *asked)
    assert document["device"].startswith("cuda" if options else "cpu")
    assert (document["threads"], document["capture"], document["callers"]) == (1, "--capture" in options, 2)
    assert document["libtorch"] == torch.__version__.split("+")[0]
    assert [entry["batch"] for entry in document["batches"]] == [1, 3]
    for entry in document["batches"]:
        assert entry.keys() == {"batch", "whole", "detect"}
        for figures in (entry["whole"], entry["detect"]):
            assert figures["calls"] >= 1
            assert 0 < figures["p50_ms"] <= figures["p90_ms"] <= figures["p99_ms"]
            assert figures["images_per_s"] > 0
