"""The command `lensbox train`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from short_runs import TINY

from lensbox.model.weights_file import SHIPPED_WEIGHTS
from lensbox.train.data.labels import fold_index
from lensbox.train.evaluation.coco_precision import COCO_FIGURES
from lensbox.train.train import NO_STEP_LIMIT, TARGET_COLOR

Lensbox = Callable[..., tuple[str, str]]


def strict_json(path: Path) -> Any:
    """Read JSON, refusing NaN as strict parsers do."""

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    return json.loads(path.read_text(), parse_constant=refuse)


def test_trains_then_evaluates(
    faces_folder: Path, faces_shard: Path, tmp_path: Path, lensbox: Lensbox
) -> None:
    output = tmp_path / "run"
    arguments = ["--data", faces_folder, "--val", faces_shard, "--output", output]
    printed, said = lensbox("train", *arguments, "--set", *TINY)
    assert "12 photographs decoded" in said
    assert "warning: 12 of 12 photographs of --val are in --data too, such as other/0.png" in said
    assert "img/s" in said  # plain lines, for this is no terminal
    assert "average precision at IoU 0.5, 12 images" in said  # in the middle of the run
    assert printed.startswith("average precision at IoU 0.5, 12 images")
    assert f"wrote {output / 'weights.safetensors'} after 3 steps" in printed
    assert len(printed.splitlines()) == 8  # results alone
    figures, result = strict_json(output / "figures.json"), tmp_path / "figures.json"
    assert set(figures["coco"]) == set(COCO_FIGURES)
    assert figures["average_precision"]["tiny4-8"] is None  # no such faces
    # The checkpoint holds the same weights.
    for option, file in (("--weights", "weights.safetensors"), ("--checkpoint", "checkpoint.pt")):
        coco = ["--coco"] if option == "--checkpoint" else []
        lensbox("evaluate", "--data", faces_shard, option, output / file, "--json", result, *coco)
        again = strict_json(result)
        assert again["average_precision"] == figures["average_precision"]
        assert again["coco"] == (figures["coco"] if coco else None)

    config = json.loads(lensbox("train", *arguments, "--resume", "--set", "steps=5", "--print-config")[0])
    assert (config["model"], config["batch_size"], config["steps"]) == ("small", 3, 5)


def test_contact_sheet(faces_folder: Path, tmp_path: Path, lensbox: Lensbox) -> None:
    sheet = tmp_path / "sheet.png"
    arguments = ["--data", faces_folder, "--contact-sheet", sheet, "--set", *TINY, "batch_size=10"]
    named = 'source_weights={"wider": 1, "otter": 0}', 'source_trims={"other": [0, 0, 0, 0.1]}'
    printed, said = lensbox("train", *arguments, *named)
    assert "2 mosaics, 3 whole photographs, 5 crops" in printed
    assert "warning: source_weights names 'otter', but no photograph has this source" in said
    assert said.count("warning") == 1
    with Image.open(sheet) as picture:
        assert picture.size == (8 * 256, 2 * 256)
        green = sum(count for count, color in picture.getcolors(1 << 24) if color == TARGET_COLOR)
    assert green > 500


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ("train --set stepz=3", 2, "unknown configuration key 'stepz'"),
        ("train --time-limit 0", 2, "--time-limit must be above 0"),
        ("train --time-limit nan", 2, "--time-limit must be above 0 and finite, got nan"),
        ("train --resume --set steps=1", 2, "checkpoint must be a file"),
        (f"train --resume --set steps={NO_STEP_LIMIT}", 2, "--time-limit, or --set steps"),
        ("train --resume --weights x", 2, "--resume and --weights must not be given together"),
        ("train --device abacus", 2, "device must be cpu, cuda, cuda:N or auto, got 'abacus'"),
        ("train --device cuda:99", 2, "device must be usable, got 'cuda:99'"),
        ("train --config absent.yaml", 2, "absent.yaml"),
        ("train --orientation upright", 2, "'upright' is not one of 'exif', 'stored'"),
        ("train --teacher absent.safetensors", 4, "absent.safetensors"),
        ("train --weights absent.safetensors", 4, "absent.safetensors"),
        (f"train --weights {SHIPPED_WEIGHTS} --set model=small", 2, "model: must have the layout of"),
        ("train --leave-out 1/1", 2, "--leave-out must be a share"),
        ("train --data absent", 4, "absent"),
        ("train --output /dev/null/run", 2, "--output must be a folder that can be written, got"),
        ("evaluate --weights pyproject.toml", 4, "pyproject.toml"),
        ("evaluate --checkpoint pyproject.toml", 4, "pyproject.toml"),
        ("evaluate --artifact pyproject.toml", 3, "pyproject.toml"),
        ("evaluate --artifact absent.pt", 3, "absent.pt"),
        ("evaluate --public-key key.pub", 2, "--public-key is for --artifact, got none"),
        ("evaluate --ops x.so", 2, "--ops is for --artifact, got none"),
        ("evaluate --json /dev/null/x.json", 2, "--json"),
    ],
)
def test_wrong_usage(
    faces_folder: Path,
    tmp_path: Path,
    lensbox: Lensbox,
    monkeypatch: pytest.MonkeyPatch,
    options: str,
    code: int,
    words: str,
) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    command, *extra = options.split()
    output = ["--output", tmp_path] if command == "train" else []
    printed, said = lensbox(command, "--data", faces_folder, *output, *extra, code=code)
    assert f"lensbox {command}" in said
    assert words in said
    assert "decoded" not in said
    assert printed == ""


def test_the_last_setting_counts(lensbox: Lensbox) -> None:
    arguments = ["--data", "none", "--print-config", "--set", "model=large"]
    assert json.loads(lensbox("train", *arguments)[0])["model"] == "large"
    assert json.loads(lensbox("train", *arguments, "model=small")[0])["model"] == "small"


def test_bad_data_is_skipped_or_stops_a_strict_run(
    faces_folder: Path, tmp_path: Path, lensbox: Lensbox
) -> None:
    images = tmp_path / "images"
    images.mkdir()
    (images / "good.png").write_bytes((faces_folder / "images" / "other" / "0.png").read_bytes())
    (images / "bad.jpg").write_bytes(b"nothing")
    (tmp_path / "x_bbx_gt.txt").write_text("good.png\n2\n5 5 30 30\n9 2 -3 3\nbad.jpg\n1\n5 5 30 30\n")
    arguments = ["--data", tmp_path, "--contact-sheet", tmp_path / "s.png"]
    _, said = lensbox("train", *arguments, "--set", *TINY)
    assert "x_bbx_gt.txt:4: width and height must be above 0" in said
    assert "x_bbx_gt.txt:5: image bad.jpg cannot be read" in said
    assert "x_bbx_gt.txt:4" in lensbox("train", *arguments, "--strict", code=4)[1]


def test_a_fold_must_leave_photographs(faces_folder: Path, tmp_path: Path, lensbox: Lensbox) -> None:
    (tmp_path / "images").symlink_to(faces_folder / "images")
    (tmp_path / "x_bbx_gt.txt").write_text("other/0.png\n0\n")
    fold = f"{fold_index('other/0.png', 2) + 1}/2"
    arguments = ["--data", tmp_path, "--output", tmp_path / "run", "--leave-out", fold]
    _, said = lensbox("train", *arguments, code=4)
    assert f"--leave-out {fold} must leave photographs to train on, got none" in said
