"""`lensbox train`, as one types it."""

import contextlib
import io
import json
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from short_runs import TINY

from lensbox.common.errors import ExitCode
from lensbox.common.main import main
from lensbox.train.data.folds import fold_index
from lensbox.train.evaluation.coco_precision import COCO_FIGURES
from lensbox.train.train import NO_STEP_LIMIT


def strict_json(path: Path) -> Any:
    """Reads JSON as other programs do, which know no NaN."""

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    return json.loads(path.read_text(), parse_constant=refuse)


def test_trains_then_evaluates(
    faces_folder: Path, faces_shard: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "run"
    arguments = [
        "--data",
        str(faces_folder),
        "--val",
        str(faces_shard),
        "--output",
        str(output),
        "--tensorboard",
    ]
    assert main(["train", *arguments, "--device", "cpu", "--set", *TINY]) == 0
    printed, said = capsys.readouterr()
    assert "12 photographs decoded" in said
    assert "img/s" in said  # plain lines, for this is no terminal
    assert "average precision at IoU 0.5, 12 images" in said  # in the middle of the run
    assert printed.startswith("average precision at IoU 0.5, 12 images")
    assert f"wrote {output / 'weights.safetensors'} after 3 steps" in printed
    assert len(printed.splitlines()) == 8  # results alone
    weights = output / "weights.safetensors"
    figures = strict_json(output / "figures.json")
    result = tmp_path / "figures.json"
    scored = ["--data", str(faces_shard), "--weights", str(weights), "--device", "cpu", "--json", str(result)]
    assert main(["evaluate", *scored]) == 0
    assert "16-32 px" in capsys.readouterr().out
    again = strict_json(result)
    assert again["average_precision"] == figures["average_precision"]
    assert again["average_precision"]["tiny4-8"] is None  # no such faces
    assert set(figures["coco"]) == set(COCO_FIGURES)
    assert again["coco"] is None

    # The checkpoint holds the same weights, and COCO's figures come on request.
    scored = ["--data", str(faces_shard), "--checkpoint", str(output / "checkpoint.pt"), "--device", "cpu"]
    assert main(["evaluate", *scored, "--coco", "--json", str(result)]) == 0
    assert "AP50" in capsys.readouterr().out
    again = strict_json(result)
    assert again["average_precision"] == figures["average_precision"]
    assert again["coco"] == figures["coco"]


def test_a_resumed_run_keeps_its_configuration(
    faces_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--data", str(faces_folder), "--output", str(tmp_path), "--device", "cpu"]
    assert main(["train", *arguments, "--set", *TINY]) == 0
    capsys.readouterr()
    assert main(["train", *arguments, "--resume", "--set", "steps=5", "--print-config"]) == 0
    config = json.loads(capsys.readouterr().out)
    assert (config["model"], config["batch_size"], config["steps"]) == ("small", 3, 5)


def test_a_run_ended_by_time_needs_to_know_when_to_end_again(
    faces_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"steps": NO_STEP_LIMIT}))
    arguments = ["--data", str(faces_folder), "--output", str(tmp_path), "--device", "cpu", "--resume"]
    assert main(["train", *arguments]) == 2
    assert "--time-limit, or --set steps" in capsys.readouterr().err


def test_a_terminal_gets_a_bar_in_the_place_of_lines(
    faces_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    arguments = ["--data", str(faces_folder), "--output", str(tmp_path), "--device", "cpu"]
    assert main(["train", *arguments, "--set", *TINY, "log_seconds=0.001"]) == 0
    printed = capsys.readouterr().out
    assert "wrote" in printed
    assert "img/s, loss" in stream.getvalue()
    assert "img/s  loss" not in stream.getvalue()
    assert "12 photographs decoded" in stream.getvalue()
    assert "100.0%|" in stream.getvalue()
    assert "step 3, " in stream.getvalue()


def test_profile(faces_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--data", str(faces_folder), "--output", str(tmp_path), "--device", "cpu", "--profile"]
    assert main(["train", *arguments, "--set", *TINY]) == 0
    printed = dict(line.split()[:2] for line in capsys.readouterr().out.splitlines()[-5:])
    assert 0 < float(printed["loss_share"]) < 1
    assert float(printed["images_per_second"]) > 0
    assert not (tmp_path / "weights.safetensors").exists()


def test_contact_sheet(faces_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sheet = tmp_path / "sheet.png"
    arguments = ["--data", str(faces_folder), "--device", "cpu", "--contact-sheet", str(sheet)]
    assert main(["train", *arguments, "--set", *TINY, "batch_size=10"]) == 0
    assert "2 mosaics, 3 whole photographs, 5 crops" in capsys.readouterr().out
    with Image.open(sheet) as picture:
        assert picture.size == (8 * 256, 2 * 256)
        green = sum(count for count, color in picture.getcolors(1 << 24) if color == (60, 255, 90))
    assert green > 500


@pytest.mark.parametrize(
    ("extra", "code", "words"),
    [
        (["--set", "stepz=3"], 2, "unknown configuration key 'stepz'"),
        (["--time-limit", "0"], 2, "--time-limit must be above 0"),
        (["--time-limit", "nan"], 2, "--time-limit must be above 0 and finite, got nan"),
        (["--time-limit", "inf"], 2, "--time-limit must be above 0 and finite, got inf"),
        (["--resume", "--set", *TINY], 2, "checkpoint must be a file"),
        (["--device", "abacus"], 2, "--device must be a device such as cpu"),
        (["--device", "meta"], 2, "--device must be a device such as cpu"),
        (["--device", "cuda:99"], 2, "--device must be one that this machine has, got cuda:99"),
        (["--set", "model=huge"], 2, "model: name must be one of small, base, large"),
        (["--config", "absent.yaml"], 2, "absent.yaml"),
        (["--config", "/"], 2, "configuration file / cannot be read"),
        (["--teacher", "absent.safetensors"], 4, "absent.safetensors"),
    ],
)
def test_wrong_usage(
    faces_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    extra: list[str],
    code: int,
    words: str,
) -> None:
    arguments = ["--data", str(faces_folder), "--output", str(tmp_path), "--device", "cpu", *extra]
    assert main(["train", *arguments]) == code
    said = capsys.readouterr().err
    assert said.startswith("lensbox train: ") or "\nlensbox train: " in said
    assert words in said


def test_bad_data_is_skipped_or_stops_a_strict_run(
    faces_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    (data / "images").mkdir(parents=True)
    good = next((faces_folder / "images" / "other").glob("*.png"))
    (data / "images" / "good.png").write_bytes(good.read_bytes())
    (data / "images" / "bad.jpg").write_bytes(b"nothing")
    (data / "x_bbx_gt.txt").write_text("good.png\n2\n5 5 30 30\n1 2 3\nbad.jpg\n1\n5 5 30 30\n")
    arguments = ["--data", str(data), "--device", "cpu", "--contact-sheet", str(tmp_path / "s.png")]
    assert main(["train", *arguments, "--set", *TINY]) == 0
    printed = capsys.readouterr().err
    assert "x_bbx_gt.txt:4: a box needs at least x y w h" in printed
    assert "x_bbx_gt.txt:5: image bad.jpg cannot be read" in printed
    assert main(["train", *arguments, "--strict", "--set", *TINY]) == 4
    assert "x_bbx_gt.txt:4" in capsys.readouterr().err
    assert main(["train", "--data", str(tmp_path / "absent"), "--device", "cpu"]) == 4


def test_likely_mistakes_are_said(
    faces_folder: Path, faces_shard: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Photographs that are trained and scored on, and sources that there are none of."""
    arguments = ["--device", "cpu", "--contact-sheet", str(tmp_path / "s.png"), "--data", str(faces_folder)]
    named = 'source_weights={"wider": 1, "otter": 0}', 'source_trims={"other": [0, 0, 0, 0.1]}'
    assert main(["train", *arguments, "--val", str(faces_shard), "--set", *TINY, *named]) == 0
    said = capsys.readouterr().err.splitlines()
    shared = "12 of 12 photographs of --val are in --data too, such as other/0.png"
    assert f"warning: {shared}: the figures will be too good" in said
    assert "warning: source_weights names 'otter', a source of which there is no photograph" in said
    assert sum(line.startswith("warning") for line in said) == 2


def test_a_fold_must_leave_photographs(
    faces_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "images").symlink_to(faces_folder / "images")
    (tmp_path / "x_bbx_gt.txt").write_text("other/0.png\n0\n")
    arguments = ["--data", str(tmp_path), "--device", "cpu", "--output", str(tmp_path / "run")]
    fold = fold_index("other/0.png", 2) + 1
    assert main(["train", *arguments, "--leave-out", f"{fold}/2"]) == ExitCode.BAD_INPUT
    assert f"--leave-out {fold}/2 must leave photographs to train on, got none" in capsys.readouterr().err


def test_an_output_that_is_a_file_is_refused_before_anything_is_decoded(
    faces_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("mine")
    for output in ("file", "file/run"):
        arguments = ["--data", str(faces_folder), "--device", "cpu", "--output", str(tmp_path / output)]
        assert main(["train", *arguments, "--set", *TINY]) == ExitCode.USAGE
        said = capsys.readouterr().err
        assert "lensbox train: --output must be a folder that can be written, got" in said
        assert "decoded" not in said
    assert (tmp_path / "file").read_text() == "mine"


@contextlib.contextmanager
def small_files_only() -> Iterator[None]:
    """No file of this process may grow beyond 10 kB: what a full disk does, in all that matters here.

    No fixture: pytest reports between a test and the end of its fixtures, maybe into a file that is longer.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_said_in_a_line(
    faces_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--data", str(faces_folder), "--output", str(tmp_path), "--device", "cpu", "--set", *TINY]
    with small_files_only():
        code = main(["train", *arguments])
    assert code == ExitCode.UNUSABLE
    said = capsys.readouterr().err
    assert "lensbox train: " in said
    assert "File too large" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "log.jsonl"]


def test_an_unforeseen_error_keeps_its_traceback(
    faces_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_args: object, **_kwargs: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr("lensbox.train.run.step.detection_loss", broken)
    arguments = ["--data", str(faces_folder), "--output", str(tmp_path), "--device", "cpu", "--set", *TINY]
    with pytest.raises(RuntimeError, match="out of memory"):
        main(["train", *arguments])
