"""Wrong command lines: exit code 2, nothing on stdout, a message that names the option."""

from pathlib import Path

import pytest
from cpp_runtime.running import Run

MODEL = ["--artifact", "unused.pt"]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ([], "subcommand"),
        (["predict", "--image", "x.png"], "no subcommand predict"),
        (["info"], "--artifact"),
        (["info", *MODEL, "--no-such-option"], "--no-such-option"),
        (["detect", *MODEL, "--image", "a.jpg", "--treshold", "1"], "--treshold"),
        (["detect", *MODEL], "one of --image and --raw, got none"),
        (["detect", *MODEL, "--image", "x.png", "--raw", "8x8", "gray8"], "got both"),
        (["detect", *MODEL, "--raw", "640", "gray8"], "WIDTHxHEIGHT"),
        (["detect", *MODEL, "--raw", "8x8", "gray8", "--recursive"], "--recursive requires --image"),
        (
            ["detect", *MODEL, "--raw", "4x4", "gray8", "--orientation", "exif"],
            "--orientation requires --image",
        ),
        (["detect", *MODEL, "--raw", "4x4", "gray8", "--decode-threads", "2"], "--decode-threads requires"),
        (["detect", *MODEL, "--image", "x.png", "--score-threshold", "1.5"], "from 0 to 1, got 1.5"),
        (["detect", *MODEL, "--image", "x.png", "--score-threshold", "nan"], "from 0 to 1, got nan"),
        (["detect", *MODEL, "--image", "x.png", "--score-threshold", "high"], "from 0 to 1, got high"),
        (["detect", *MODEL, "--image", "x.png", "--threads", "0"], "--threads"),
        (["detect", *MODEL, "--image", "x.png", "--batch", "0"], "--batch"),
        (["detect", *MODEL, "--image", "x.png", "--decode-threads", "0"], "--decode-threads"),
        (["detect", *MODEL, "--image", "x.png", "--orientation", "1"], "--orientation"),
        (["bench", *MODEL, "--batch-sizes", "1,0"], "--batch-sizes"),
        (["bench", *MODEL, "--callers", "0"], "--callers"),
        (["bench", *MODEL, "--seconds", "nan"], "from 0.001 to 3600, got nan"),
        (["loss", *MODEL, "--predictions", "a.json"], "--targets"),
        (["loss", *MODEL, "--predictions", "-", "--targets", "-"], "stdin"),
    ],
)
def test_wrong_usage(run: Run, arguments: list[str], part: str) -> None:
    result = run(*arguments)
    assert (result.code, result.stdout) == (2, "")
    assert part in result.stderr


def test_refuses_an_unknown_device(run: Run, artifact: Path) -> None:
    result = run("selftest", "--artifact", artifact, "--device", "mps")
    assert (result.code, result.stdout) == (2, "")
    assert "device must be cpu, cuda, cuda:N or auto, got 'mps'" in result.stderr
