"""The options of `lensbox train` and `lensbox evaluate`, and the script with the shipped weights' recipe."""

import json
import os
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from programs import Lensbox, run

from lensbox.model.weights_file import SHIPPED_WEIGHTS
from lensbox.train.cli import train
from lensbox.train.settings import TrainConfig, read_config

RECIPES = Path(__file__).parents[2] / "train" / "recipes"

# A program in place of `lensbox`: it notes its arguments, and writes what a run leaves.
NOTES = """#!/bin/bash
printf '%q ' "${@:2}" >> "$LOG"; echo >> "$LOG"
while [ "$1" != --output ]; do shift; done
mkdir -p "$2" && touch "$2"/{best,weights}.safetensors
"""


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ("train --steps 0", 2, "steps must be greater than or equal to 1, got 0"),
        ("train --resume", 2, "checkpoint must be a file"),
        ("train --resume --weights x", 2, "--resume and --weights must not be given together"),
        ("train --device cuda:99", 2, "device must be usable, got 'cuda:99'"),
        ("train --teacher absent.safetensors", 4, "absent.safetensors"),
        ("train --weights absent.safetensors", 4, "absent.safetensors"),
        (f"train --weights {SHIPPED_WEIGHTS} --model small", 2, "model must have the layout of"),
        ("train --data absent", 4, "absent"),
        ("train --output /dev/null/run", 2, "--output must be a folder that can be written, got"),
        ("evaluate --weights pyproject.toml", 4, "pyproject.toml"),
        ("evaluate --artifact pyproject.toml", 3, "pyproject.toml"),
        ("evaluate --public-key key.pub", 2, "--public-key is for --artifact, got none"),
        ("evaluate --ops x.so", 2, "--ops is for --artifact, got none"),
        ("evaluate --json /dev/null/x.json", 2, "--json"),
        ("evaluate --detections absent.jsonl", 4, "absent.jsonl cannot be read"),
        ("evaluate --detections x --score-threshold 0.1", 2, "--score-threshold is for a detector"),
        ("evaluate --score-threshold 1.5", 2, "--score-threshold must be"),
        ("evaluate --plots /dev/null/x", 2, "--plots"),
        ("evaluate --detections x.json --weights y", 2, "must not be given together"),
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


@pytest.mark.parametrize(("given", "expected"), [(None, "passive"), ("active", "active")])
@pytest.mark.parametrize(
    ("command", "code"), [("train --data x --print-config", 0), ("evaluate --data absent", 4)]
)
def test_threads_sleep_while_they_wait(
    lensbox: Lensbox,
    monkeypatch: pytest.MonkeyPatch,
    given: str | None,
    expected: str,
    command: str,
    code: int,
) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY")
    if given is not None:
        monkeypatch.setenv("OMP_WAIT_POLICY", given)
    lensbox(*command.split(), code=code)
    assert os.environ["OMP_WAIT_POLICY"] == expected


def test_options_override_files_and_later_files_earlier_ones(tmp_path: Path, lensbox: Lensbox) -> None:
    files = []
    for name, text in (("a", "steps: 1\nseed: 1\nworkers: 1"), ("b", "seed: 2\nworkers: 2")):
        files.append(tmp_path / name)
        files[-1].write_text(text)
    printed, _ = lensbox("train", "--data", "x", "--config", *files, "--workers", "3", "--print-config")
    config = json.loads(printed)
    assert (config["steps"], config["seed"], config["workers"]) == (1, 2, 3)


def runs_of(folder: Path, *data: str) -> list[dict[str, Any]]:
    """Run the script in a folder; return the options of each `lensbox train` that it starts."""
    program, log = folder / "bin" / "lensbox", folder / "log"
    program.parent.mkdir(exist_ok=True)
    program.write_text(NOTES)
    program.chmod(0o755)
    log.write_text("")
    where = {"PATH": f"{program.parent}:{os.environ['PATH']}", "LOG": str(log), "DEVICE": "cpu"}
    where |= {"SOURCES": str(RECIPES / "shared_faces.json"), "OPTIONS": "--batch-size 8"}
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
    steps = []
    assert runs[6]["weights"] == runs[5]["output"] / "weights.safetensors"
    for one in runs:
        config = TrainConfig()
        for path in one["config"]:
            config = config.replace(**read_config(path))
        assert config.source_weights["wider"] == 3.0
        steps.append(config.steps)
    assert steps == [15_500] * 5 + [17_775, 10_969]
    assert (tmp_path / "detector.safetensors").is_file()

    shutil.rmtree(tmp_path / "refined")
    assert [one["output"].name for one in runs_of(tmp_path, "a.tar")] == ["refined"]


def test_without_data_it_says_how_to_use_it(tmp_path: Path) -> None:
    assert "distilled.sh OUTPUT VAL DATA..." in run(RECIPES / "distilled.sh", tmp_path, code=2).stderr
