"""`lensbox detect`: the same results from an artifact and from a service, in each format."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import PIL.Image
import PIL.ImageOps
import pytest
from fake_transport import problem
from waiting import PATIENCE

from lensbox.cli.detect import list_files
from lensbox.cli.main import main
from lensbox.client import Client
from lensbox.runtime import load_artifact

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(
    random_path: Path, photos: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Run the command in the folder of the photographs: exit code, stdout, stderr."""
    monkeypatch.chdir(photos)
    monkeypatch.delenv("LENSBOX_API_KEY", raising=False)

    def run(*arguments: str | Path, where: str | None = None) -> tuple[int, str, str]:
        how = ["--url", where] if where else ["--artifact", str(random_path)]
        code = main(["detect", *how, *map(str, arguments)])
        stdout, stderr = capsys.readouterr()
        return code, stdout, without_log(stderr)

    return run


def without_log(stderr: str) -> str:
    """Drop the line that says that the artifact is unsigned."""
    return "".join(line for line in stderr.splitlines(True) if "is unsigned: " not in line)


def entries(stdout: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stdout.splitlines()]


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--score-threshold", "0.0103", "--iou-threshold", "0", "--orientation", "stored"),
        ("--tiles", "100,0.5", "--score-threshold", "0.0103"),
    ],
    ids=["defaults", "options", "tiles"],
)
def test_artifact_and_service_give_the_same_results(
    run: Run, url: str, random_path: Path, photos: Path, options: tuple[str, ...]
) -> None:
    own = run(".", "--recursive", "--batch", "1", *options)
    asked = run(".", "--recursive", "--connections", "1", *options, where=url)
    assert own == asked
    code, stdout, stderr = own
    assert (code, stderr) == (0, "")
    files = [entry["file"] for entry in entries(stdout)]
    assert files == ["a.PNG", "b.jpg", "below/c.webp", "turned.jpg"]
    artifact = load_artifact(random_path)
    for entry in [] if options else entries(stdout):
        found = artifact.detect_image(artifact.read_photo(photos / entry["file"]))
        assert len(found.scores) > 0
        assert [one["box"] for one in entry["detections"]] == found.boxes.tolist()
        assert [one["score"] for one in entry["detections"]] == found.scores.tolist()


def test_a_bad_file_is_one_error_line(run: Run, url: str, tmp_path: Path) -> None:
    bad, missing, empty = tmp_path / "bad.jpg", tmp_path / "missing.jpg", tmp_path / "empty"
    bad.write_text("hello")
    empty.mkdir()
    for where in (None, url):
        code, stdout, stderr = run(bad, "b.jpg", missing, empty, "a.PNG", where=where)
        assert code == 4
        found = entries(stdout)
        names = [Path(entry["file"]).name for entry in found]
        assert names == ["bad.jpg", "b.jpg", "missing.jpg", "empty", "a.PNG"]
        errors = [entry["error"] for entry in found if "error" in entry]
        assert [f"lensbox detect: {error}" for error in errors] == stderr.splitlines()
        for path, error in zip((bad, missing, empty), errors, strict=True):
            assert str(path) in error
        assert f"there is no file missing.jpg in {tmp_path}" in errors[1]
        assert "no file in this folder ends with .jpg" in errors[2]
        assert all("detections" in found[index] for index in (1, 4))


def test_prints_file_names_that_are_not_text(run: Run, photos: Path, tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xc3\xa9.jpg"))
    shutil.copy(photos / "b.jpg", path)
    code, stdout, stderr = run(path, "--format", "jsonl")
    assert (code, stderr) == (0, "")
    assert Path(entries(stdout)[0]["file"]) == path
    assert "\\udcff\u00e9.jpg" in run(path, "--format", "table")[1]


def test_drawings_are_upright_at_full_size_and_mirror_the_folder(
    run: Run, photos: Path, tmp_path: Path
) -> None:
    drawn = tmp_path / "drawn"
    run(".", "--recursive", "--annotate", drawn)
    names = {path.relative_to(drawn).as_posix() for path in drawn.rglob("*") if path.is_file()}
    assert names == {"a.PNG.png", "b.jpg.png", "below/c.webp.png", "turned.jpg.png"}
    run("turned.jpg", "--annotate", drawn, "--score-threshold", "1")
    with (
        PIL.Image.open(photos / "turned.jpg") as image,
        PIL.Image.open(drawn / "turned.jpg.png") as untouched,
    ):
        np.testing.assert_array_equal(np.asarray(untouched), np.asarray(PIL.ImageOps.exif_transpose(image)))
    run("turned.jpg", "--annotate", drawn)
    with PIL.Image.open(drawn / "turned.jpg.png") as image:
        assert (np.asarray(image) == (57, 255, 120)).all(-1).any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("b.jpg --score-threshold 2", "--score-threshold must be less than or equal to 1, got 2"),
        ("b.jpg --api-key k", "--api-key must come with --url"),
        ("b.jpg --device cuda:x", "--device must be auto, cpu, cuda or cuda:N, got 'cuda:x'"),
        ("b.jpg --url http://a", "--artifact is not for --url"),
        ("https://example.com/photo.jpg", "got the URL https:/example.com/photo.jpg: download it first"),
        ("b.jpg b.jpg --annotate {tmp}/x", "b.jpg.png twice"),
        (". --annotate ../{folder}", "--annotate must not be a folder of the images"),
        ("b.jpg --annotate a.PNG", "--annotate must be a folder, got a.PNG"),
    ],
)
def test_wrong_usage(run: Run, photos: Path, tmp_path: Path, arguments: str, message: str) -> None:
    code, stdout, stderr = run(*arguments.format(tmp=tmp_path, folder=photos.name).split())
    assert (code, stdout) == (2, "")
    assert message in " ".join(stderr.split())


def test_names_a_service_that_cannot_be_reached(run: Run) -> None:
    assert run("b.jpg", where="localhost:8000")[0] == 2
    code, stdout, stderr = run("b.jpg", where="http://127.0.0.1:9")
    assert (code, stdout) == (3, "")
    assert re.fullmatch(r"lensbox detect: http://127\.0\.0\.1:9/? cannot be reached: .*\n", stderr)


@pytest.mark.parametrize(("status", "code", "lines"), [(401, 3, 1), (500, 4, 2)])
def test_a_rejected_key_ends_the_command_and_a_failed_image_does_not(
    status: int, code: int, lines: int, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys: set[str | None] = set()

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/model":
            return httpx.Response(200, json={"defaults": {}})
        keys.add(request.headers.get("Authorization"))
        return problem(status, "internal_error" if status == 500 else "unauthorized", "no")

    monkeypatch.setattr("lensbox.client.Client", partial(Client, transport=httpx.MockTransport(answer)))
    monkeypatch.setenv("LENSBOX_API_KEY", "from-environment")
    ended, _, stderr = run("b.jpg", "a.PNG", where="http://service")
    assert (ended, len(stderr.splitlines())) == (code, lines)
    assert keys == {"Bearer from-environment"}


def test_a_closed_pipe_is_not_an_error(random_path: Path, photos: Path) -> None:
    command = [sys.executable, "-m", "lensbox.cli", "detect", "--artifact", str(random_path)]
    command += ["--batch", "1", *["b.jpg"] * 400]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=photos, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["file"] == "b.jpg"
        process.stdout.close()
        assert without_log(process.stderr.read()) == ""
        assert process.wait(PATIENCE) == 0


def test_lists_files_and_folders(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(photos)
    listed = list_files([Path("notes.txt"), Path(), Path("below")], False)
    paths = ["notes.txt", "a.PNG", "b.jpg", "turned.jpg", "below/c.webp"]
    assert [str(file.path) for file in listed] == paths
    assert {file.fault for file in listed} == {None}
