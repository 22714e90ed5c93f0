"""detect of folders: the files taken, and their order."""

import json
import os
from pathlib import Path

import pytest
from cpp_runtime.image_files import noise
from cpp_runtime.running import Run, Start

PICTURES = ["B.JPG", "a.jpg", "a.png", "c.Jpeg"]
PICTURES_BELOW = ["below/a.jpg", "below/deep/z.png"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder of pictures with several names, folders, and files to be ignored."""
    root = tmp_path / "photos"
    for name in [*PICTURES, *PICTURES_BELOW, ".hidden.jpg", ".thumbnails/a.jpg"]:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        noise("RGB").save(path, "PNG" if path.suffix == ".png" else "JPEG")
    (root / "labels.json").write_text("{}")
    (root / "jpg").write_text("no image")
    (root / "empty.png").mkdir()
    (root / "loop").symlink_to(root)
    return root


def test_takes_the_image_files_of_a_folder(run: Run, artifact: Path, folder: Path) -> None:
    result = run("detect", "--artifact", artifact, "--image", folder)
    assert result.code == 0, result.stderr
    images = result.json()["images"]
    assert [entry["file"] for entry in images] == [str(folder / name) for name in PICTURES]
    listed = run("detect", "--artifact", artifact, "--image", *(folder / name for name in PICTURES))
    assert listed.json()["images"] == images


def test_recursive_looks_below(run: Run, artifact: Path, folder: Path) -> None:
    result = run("detect", "--artifact", artifact, "--recursive", "--image", folder / "a.png", folder)
    assert result.code == 0, result.stderr
    names = ["a.png", "B.JPG", "a.jpg", "a.png", *PICTURES_BELOW, "c.Jpeg"]
    assert [entry["file"] for entry in result.json()["images"]] == [str(folder / name) for name in names]


def test_a_folder_without_images(run: Run, artifact: Path, folder: Path) -> None:
    empty = folder / "empty.png"
    result = run("detect", "--artifact", artifact, "--image", empty, folder / "a.png")
    assert result.code == 4
    bad, good = result.json()["images"]
    assert bad["file"] == str(empty)
    assert f"folder {empty}: no file in it ends with .jpg, .jpeg or .png (--recursive" in bad["error"]
    assert good["detections"]
    assert bad["error"] in result.stderr


def test_reports_files_with_an_image_name_that_are_not_images(run: Run, artifact: Path, folder: Path) -> None:
    (folder / "d.jpg").write_text("no image")
    (folder / "gone.png").symlink_to(folder / "nowhere")
    os.mkfifo(folder / "pipe.png")
    result = run("detect", "--artifact", artifact, "--image", folder)
    assert result.code == 4
    errors = {
        Path(entry["file"]).name: entry["error"] for entry in result.json()["images"] if "error" in entry
    }
    assert sorted(errors) == ["d.jpg", "gone.png", "pipe.png"]
    assert "neither a JPEG nor a PNG" in errors["d.jpg"]
    assert "no such file" in errors["gone.png"]
    assert "not a file" in errors["pipe.png"]


def test_json_lines_are_the_entries(run: Run, artifact: Path, folder: Path, tmp_path: Path) -> None:
    arguments = ["detect", "--artifact", artifact, "--image", tmp_path / "absent.jpg", folder]
    expected = run(*arguments)
    result = run(*arguments, "--json-lines")
    assert (result.code, result.stderr) == (4, expected.stderr)
    assert [json.loads(line) for line in result.stdout.splitlines()] == expected.json()["images"]


def test_json_lines_are_written_at_once(start: Start, artifact: Path, tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    noise("RGB").save(photos / "0.png")
    for number in range(1, 400):
        (photos / f"{number}.png").symlink_to(photos / "0.png")
    with start("detect", "--artifact", artifact, "--json-lines", "--image", photos) as process:
        assert json.loads(process.stdout.readline())["file"] == str(photos / "0.png")
        # A closed stdout ends the program with 0, long before the last file.
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == 0
