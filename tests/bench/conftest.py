"""The benchmarks of `lensbox bench`, run on tiny inputs."""

import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
from small_detectors import SHALLOW

from lensbox.common.errors import ExitCode
from lensbox.common.main import main
from lensbox.model import FaceDetector


class Written(NamedTuple):
    """Standard output, rows of the CSV file and text of the Markdown file of a run."""

    printed: str
    rows: list[dict[str, str]]
    markdown: str


@pytest.fixture
def quick_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Written]:
    """Run `lensbox bench NAME --quick` with a shallow detector and few samples, and read its files."""
    detector = FaceDetector(SHALLOW).eval()
    monkeypatch.setattr("lensbox.model.load_detector", lambda weights: detector)

    def run(name: str, benchmark: ModuleType, *options: str, device: str = "cpu") -> Written:
        short = replace(benchmark.QUICK, rounds=3, sample_seconds=1e-4, figure_seconds=0.01)
        monkeypatch.setattr(benchmark, "QUICK", short)
        output = tmp_path / "new"
        command = ["bench", name, "--device", device, "--quick", "--output", str(output), *options]
        assert main(command) == ExitCode.GOOD
        printed = capsys.readouterr().out
        with (output / f"{name}.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        return Written(printed, rows, (output / f"{name}.md").read_text())

    return run
