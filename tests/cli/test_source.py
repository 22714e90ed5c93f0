"""The shipped detector in the user's cache, and errors of an artifact."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from programs import Lensbox, run_lensbox

from lensbox.cli.samples import save_photos
from lensbox.cli.source import shipped_artifact


@pytest.mark.exhaustive
def test_exports_the_shipped_detector_once(tmp_path: Path) -> None:
    save_photos(tmp_path)
    words = ("detect", "grace_hopper.jpg", "--format", "jsonl")
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    first, again = (run_lensbox(*words, cwd=tmp_path, env=cache) for _ in range(2))
    (path,) = (tmp_path / "cache" / "lensbox").iterdir()
    assert f"exporting the shipped detector to {path}, once" in first.stderr
    assert again.stderr == ""
    assert len(json.loads(first.stdout)["detections"]) == 1
    assert first.stdout == again.stdout


def test_python_3_14_caches_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Mock(return_value=SimpleNamespace(returncode=0))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "version_info", (3, 14, 0, "final", 0))
    monkeypatch.setattr(subprocess, "run", run)
    path = shipped_artifact()
    assert path.suffix == ".pt2"  # of the export's default format there
    assert run.call_args.args[0][-2:] == ["--output", str(path)]


def test_an_unwritable_cache_and_a_missing_artifact_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lensbox: Lensbox
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    photo = tmp_path / "file"
    assert str(photo / "lensbox") in lensbox("detect", photo, code=2)[1]
    os.mkfifo(tmp_path / "pipe")
    _, said = lensbox("detect", photo, "--artifact", tmp_path / "pipe", code=3)
    assert f"{tmp_path / 'pipe'} cannot be read: it must be a regular file" in said
    _, said = lensbox("detect", photo, "--artifact", tmp_path / "none.pt", code=3)
    assert f"there is no file none.pt in {tmp_path}; " in said
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", Mock(side_effect=RuntimeError("Could not determine home directory.")))
    assert "home directory. XDG_CACHE_HOME names another cache" in lensbox("detect", photo, code=2)[1]
