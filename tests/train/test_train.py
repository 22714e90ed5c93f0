"""The command `lensbox train`."""

import json
from pathlib import Path

from programs import Lensbox
from short_runs import TINY

from lensbox.evaluation.figures import COCO_FIGURES
from lensbox.train.photographs import fold_index


def test_trains_then_evaluates(
    faces_folder: Path, faces_shard: Path, tmp_path: Path, lensbox: Lensbox
) -> None:
    output = tmp_path / "run"
    arguments = ["--data", faces_folder, "--val", faces_shard, "--output", output]
    printed, said = lensbox("train", *arguments, *TINY, "--source-weights", '{"wider": 1, "otter": 0}')
    assert "warning: source_weights names 'otter', but no photograph has this source" in said
    assert "12 photographs decoded" in said
    assert "warning: 12 of 12 photographs of --val are in --data too, such as other/0.png" in said
    assert "img/s" in said  # plain lines, for this is no terminal
    assert "average precision at IoU 0.5, 12 images" in said  # in the middle of the run
    assert printed.startswith("average precision at IoU 0.5, 12 images")
    assert f"wrote {output / 'weights.safetensors'} after 3 steps" in printed
    assert len(printed.splitlines()) == 9  # results alone
    text, result = (output / "figures.json").read_text(), tmp_path / "figures.json"
    figures = json.loads(text)
    assert "NaN" not in text  # strict parsers refuse it
    assert set(figures["coco"]) == set(COCO_FIGURES)
    assert figures["average_precision"]["tiny4-8"] is None  # no such faces
    weights = output / "weights.safetensors"
    lensbox("evaluate", "--data", faces_shard, "--weights", weights, "--json", result, "--coco")
    again = json.loads(result.read_text())
    assert all(again[name] == figures[name] for name in again if name != "account")

    # The run is finished: --resume changes nothing.
    before = {path.name: path.read_bytes() for path in output.iterdir()}
    printed, said = lensbox("train", *arguments, "--resume")
    assert printed == ""  # no results
    assert f"the run in {output} is finished after 3 steps; to train on, begin another run" in said
    assert {path.name: path.read_bytes() for path in output.iterdir()} == before
    config = json.loads(lensbox("train", *arguments, "--resume", "--steps", "5", "--print-config")[0])
    assert (config["model"], config["batch_size"], config["steps"]) == ("small", 3, 5)
    checkpoint = output / "checkpoint.pt"
    checkpoint.write_bytes(checkpoint.read_bytes()[:5000])
    assert (
        f"{checkpoint} must be a checkpoint, got a missing, damaged"
        in lensbox("train", *arguments, "--resume", code=4)[1]
    )


def test_bad_data_is_skipped_or_stops_a_strict_run(
    faces_folder: Path, tmp_path: Path, lensbox: Lensbox
) -> None:
    images = tmp_path / "images"
    images.mkdir()
    (images / "good.png").write_bytes((faces_folder / "images" / "other" / "0.png").read_bytes())
    (images / "bad.jpg").write_bytes(b"nothing")
    rows = "5 5 30 30 0 0 0 0 0 0 cat\n9 2 -3 3\n50 50 9 9 0 0 0 0 0 0 dog"
    (tmp_path / "x_bbx_gt.txt").write_text(f"good.png\n3\n{rows}\nbad.jpg\n1\n5 5 30 30\n")
    arguments = ["--data", tmp_path, "--output", tmp_path / "run"]
    _, said = lensbox("train", *arguments, *TINY, "--steps", "1")
    assert "the labels have 2 classes ('cat', 'dog'); lensbox train trains on all boxes as one class" in said
    assert "x_bbx_gt.txt:4: width and height must be above 0" in said
    assert "x_bbx_gt.txt:6: image bad.jpg cannot be read" in said
    assert "x_bbx_gt.txt:4" in lensbox("train", *arguments, "--strict", code=4)[1]


def test_a_fold_must_leave_photographs(faces_folder: Path, tmp_path: Path, lensbox: Lensbox) -> None:
    (tmp_path / "images").symlink_to(faces_folder / "images")
    (tmp_path / "x_bbx_gt.txt").write_text("other/0.png\n0\n")
    fold = f"{fold_index('other/0.png', 2) + 1}/2"
    arguments = ["--data", tmp_path, "--output", tmp_path / "run", "--leave-out", fold]
    _, said = lensbox("train", *arguments, code=4)
    assert f"--leave-out {fold} must leave photographs to train on, got none" in said
