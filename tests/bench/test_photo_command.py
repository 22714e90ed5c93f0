"""`lensbox bench photo` from its arguments to its files, on small photographs."""

import csv
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from photo_fixtures import EFFORT, SMALL, fake_runner, spoiled

from lensbox.bench.cli import EXIT_WRONG
from lensbox.bench.photo import benchmark
from lensbox.bench.photo.case import Case
from lensbox.bench.photo.chains import CHAINS, LENSBOX
from lensbox.bench.photo.file_cases import file_case
from lensbox.bench.photo.hostile.files import HOSTILE_FILES
from lensbox.bench.photo.photographs import jpeg_photograph
from lensbox.bench.photo.subject import Subject
from lensbox.common.errors import ExitCode
from lensbox.common.main import main


@pytest.fixture
def small(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run over small photographs, with a detector that is exported already."""

    def cases(subject: Subject, quick: bool) -> list[Callable[[], Case]]:
        return [partial(file_case, subject, jpeg_photograph(*SMALL), by_steps=False)]

    monkeypatch.setattr(benchmark, "make_subject", lambda *_: subject)
    monkeypatch.setattr(benchmark, "all_cases", cases)
    monkeypatch.setattr(benchmark, "_QUICK", EFFORT)
    monkeypatch.setattr(benchmark, "_ANSWERS", [(SMALL, 0)])
    monkeypatch.setattr(benchmark, "HOSTILE_FILES", HOSTILE_FILES[:1])
    monkeypatch.setattr(benchmark, "LARGEST_SIDE", 64)
    monkeypatch.setattr(benchmark, "copy_bandwidth", lambda device: 1e10)
    monkeypatch.delenv("LENSBOX_RUNNER", raising=False)


@pytest.fixture
def no_hostile_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """They need a process of their own."""
    monkeypatch.setattr(benchmark, "_add_decode_times", lambda *_: None)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.usefixtures("small")
def test_a_quick_run_writes_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main(["bench", "photo", "--device", "cpu", "--quick", "--output", str(out)]) == ExitCode.GOOD
    printed = capsys.readouterr().out
    for part in (
        "opencv-python-headless:",
        "CPU time, 1 thread",
        "to boxes: lensbox",
        "Note: the C++ runner: ",
    ):
        assert part in printed
    assert {path.name for path in out.iterdir()} == {
        *("photo.csv", "photo_answers.csv", "photo_hostile.csv", "photo.md")
    }
    timings = rows(out / "photo.csv")
    own = [row for row in timings if row["way"].startswith(LENSBOX)]
    assert {row["step"] for row in own} == {"to boxes"}
    assert all(float(row["p20_us"]) <= float(row["median_us"]) for row in own)
    assert rows(out / "photo_answers.csv")[0]["reduction"] == "2"
    assert rows(out / "photo_hostile.csv")[0]["outcome"] == "decoded"
    markdown = (out / "photo.md").read_text()
    for part in ("| to boxes: lensbox |", "## Figures", "## Not run", HOSTILE_FILES[0].name):
        assert part in markdown


@pytest.mark.usefixtures("small", "no_hostile_files")
def test_a_defect_of_our_own_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = CHAINS[LENSBOX]
    monkeypatch.setitem(CHAINS, LENSBOX, lambda subject: spoiled(right(subject)))
    assert main(["bench", "photo", "--device", "cpu", "--quick"]) == EXIT_WRONG
    assert "- lensbox: WRONG: " in capsys.readouterr().out


@pytest.mark.usefixtures("small", "no_hostile_files")
def test_the_runner_may_be_named_by_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("LENSBOX_RUNNER", str(fake_runner(tmp_path, "sys.exit('it is broken')")))
    assert main(["bench", "photo", "--device", "cpu", "--quick"]) == ExitCode.GOOD
    assert "lensbox_runner fails: it is broken" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--device", "tpu"], ["--threads", "0"], ["--only", "frames"]])
def test_usage_errors(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "photo", *arguments]) == ExitCode.USAGE
    assert "Usage: lensbox bench" in capsys.readouterr().err


def test_without_a_gpu_cuda_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["bench", "photo", "--device", "cuda"]) == ExitCode.USAGE
    assert "--device cuda: PyTorch finds no NVIDIA GPU" in capsys.readouterr().err
