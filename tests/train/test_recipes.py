"""The recipe of the shipped weights, as a script: which runs it starts, with which options."""

import os
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from programs import run

from lensbox.train.cli import train
from lensbox.train.settings import TrainConfig, read_config

RECIPES = Path(__file__).parents[2] / "train" / "recipes"

# A program in place of `lensbox`: it notes its arguments, and writes what a run leaves.
NOTES = """#!/bin/bash
printf '%q ' "${@:2}" >> "$LOG"; echo >> "$LOG"
while [ "$1" != --output ]; do shift; done
mkdir -p "$2" && touch "$2"/{best,weights}.safetensors
"""

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="the script needs bash")


def runs_of(folder: Path, *data: str) -> list[dict[str, Any]]:
    """Run the script in a folder; return the options of each `lensbox train` that it starts."""
    program, log = folder / "bin" / "lensbox", folder / "log"
    program.parent.mkdir(exist_ok=True)
    program.write_text(NOTES)
    program.chmod(0o755)
    log.write_text("")
    where = {"PATH": f"{program.parent}:{os.environ['PATH']}", "LOG": str(log), "DEVICE": "cpu"}
    where |= {"SOURCES": str(RECIPES / "shared_faces.json"), "OPTIONS": "--batch-size 8"}
    where |= {"STUDENT_SECONDS": "0"}
    run(RECIPES / "distilled.sh", folder, "val", *data, env=where)
    lines = log.read_text().splitlines()
    return [dict(train.make_context("train", shlex.split(line)).params) for line in lines]


def test_the_distilled_recipe_runs_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    runs = runs_of(tmp_path, "a.tar", "b.tar")
    assert [one["output"].name for one in runs[4:]] == ["whole", "student", "refined"]
    assert [(one["leave_out"], one["seed"]) for one in runs[:4]] == [
        (f"{fold}/4", fold) for fold in range(1, 5)
    ]
    assert all(one["data"] == (Path("a.tar"), Path("b.tar")) and one["batch_size"] == 8 for one in runs)
    teachers = tuple(one["output"] / "best.safetensors" for one in runs[:5])
    assert [one["teacher"] for one in runs] == [()] * 5 + [teachers] * 2
    assert [one["time_limit"] for one in runs] == [540.0] * 5 + [None, 440.0]
    assert runs[6]["weights"] == runs[5]["output"] / "weights.safetensors"
    for one in runs:
        config = TrainConfig()
        for path in one["config"]:
            config = config.replace(**read_config(path))
        assert config.source_weights["wider"] == 3.0
    assert (tmp_path / "detector.safetensors").is_file()

    shutil.rmtree(tmp_path / "refined")
    assert [one["output"].name for one in runs_of(tmp_path, "a.tar")] == ["refined"]


def test_without_data_it_says_how_to_use_it(tmp_path: Path) -> None:
    assert "distilled.sh OUTPUT VAL DATA..." in run(RECIPES / "distilled.sh", tmp_path, code=2).stderr
