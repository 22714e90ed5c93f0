"""detect of files and folders: bad files in batches, names, orientation, lines.

`tests/runtimes` compares detections at several thresholds with Python's, `detector_test.cpp` has batches.
"""

import functools
import json
import os
import resource
import shutil
from pathlib import Path

import programs
import pytest
from damaged_files import put, rewritten, with_metadata
from picture_files import encoded, exif, jpeg_with_exif, noise
from programs import built_runner
from runner_answers import Document, answer, refusal, run, started
from small_detectors import RedAndBlue
from waiting import PATIENCE

from lensbox.export import save_artifact
from lensbox.ops import library_path

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
    (root / "empty.png").mkdir()
    (root / "loop").symlink_to(root)
    return root


def detect(random_path: Path, *arguments: object, code: int = 0) -> list[Document]:
    images: list[Document] = answer("detect", "--artifact", random_path, *arguments, code=code)["images"]
    return images


def test_bad_files_do_not_affect_the_rest_of_a_batch(random_path: Path, folder: Path) -> None:
    text, truncated = folder / "text.jpg", folder / "truncated.png"
    text.write_text("no image")
    truncated.write_bytes((folder / "a.png").read_bytes()[:-20])
    good = [folder / name for name in PICTURES]
    files = [text, text, good[0], folder / "absent", *good[1:3], truncated, good[3], text]
    options = ["--batch", "3", "--decode-threads", "2"]
    done = run("detect", "--artifact", random_path, *options, "--image", *files, code=4)
    entries = json.loads(done.stdout)["images"]
    assert [entry["file"] for entry in entries] == [str(file) for file in files]
    assert [Path(entry["file"]) for entry in entries if "error" not in entry] == good
    assert any(entry["detections"] for entry in entries if "error" not in entry)
    errors = [entry["error"] for entry in entries if "error" in entry]
    assert done.stderr.splitlines() == [f"lensbox_runner: {error}" for error in errors]


def test_a_thread_that_the_system_refuses(random_path: Path, folder: Path) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_STACK)
    arguments = ("detect", "--artifact", random_path, "--decode-threads", 2, "--image", folder)
    # As large as the limit is the stack of a thread, here more than there are addresses.
    limit = functools.partial(resource.setrlimit, resource.RLIMIT_STACK, (2**48, most))
    message = refusal(1, *arguments, preexec_fn=limit)
    assert "decode_threads: the system gives 0 of 2 threads: Resource temporarily unavailable" in message


def test_takes_the_image_files_of_a_folder(random_path: Path, folder: Path) -> None:
    images = detect(random_path, "--image", folder)
    assert [entry["file"] for entry in images] == [str(folder / name) for name in PICTURES]
    below = detect(random_path, "--recursive", "--image", folder / "a.png", folder)
    names = ["a.png", "B.JPG", "a.jpg", "a.png", *PICTURES_BELOW, "c.Jpeg"]
    assert [entry["file"] for entry in below] == [str(folder / name) for name in names]


def test_reports_names_that_are_no_images(random_path: Path, folder: Path) -> None:
    (folder / "gone.png").symlink_to(folder / "nowhere")
    os.mkfifo(folder / "pipe.png")
    images = detect(random_path, "--image", folder, folder / "empty.png", code=4)
    errors = {Path(entry["file"]).name: entry["error"] for entry in images if "error" in entry}
    assert sorted(errors) == ["empty.png", "gone.png", "pipe.png"]
    assert "no file in it" in errors["empty.png"]
    assert "no such file" in errors["gone.png"]
    assert "not a file" in errors["pipe.png"]


def test_json_lines_are_the_entries(random_path: Path, folder: Path) -> None:
    arguments = ["--image", folder / "absent.jpg", folder]
    done = run("detect", "--artifact", random_path, *arguments, "--json-lines", code=4)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines == detect(random_path, *arguments, code=4)


def test_json_lines_are_written_at_once(random_path: Path, tmp_path: Path) -> None:
    noise("RGB").save(tmp_path / "0.png")
    for number in range(1, 400):
        (tmp_path / f"{number}.png").symlink_to(tmp_path / "0.png")
    with started("detect", "--artifact", random_path, "--json-lines", "--image", tmp_path) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["file"] == str(tmp_path / "0.png")
        # A closed stdout ends the program with 0, long before the last file.
        process.stdout.close()
        assert process.wait(PATIENCE) == 0


def test_orientation_defaults_to_the_artifact(random_path: Path, tmp_path: Path) -> None:
    photo, stored = tmp_path / "photo.jpg", tmp_path / "stored.pt"
    photo.write_bytes(jpeg_with_exif(encoded(noise("RGB", 90, 50)), exif(8)))
    change = with_metadata(put("reading.orientation", "stored"))
    stored.write_bytes(rewritten(random_path.read_bytes(), change))
    for path, options, width in ((random_path, [], 50), (stored, [], 90), (stored, ["exif"], 50)):
        turn = ["--orientation", *options] if options else []
        assert detect(path, "--image", photo, *turn)[0]["width"] == width


def test_names_that_are_not_utf8_and_files_without_permission(random_path: Path, tmp_path: Path) -> None:
    path = tmp_path / b"caf\xe9.png".decode(errors="surrogateescape")
    noise("RGB").save(path)
    assert detect(random_path, "--image", path)[0]["file"].endswith("caf\ufffd.png")
    photo, secret = tmp_path / "secret.png", tmp_path / "secret.pt"
    for locked, source in ((photo, path), (secret, random_path)):
        shutil.copy(source, locked)
        locked.chmod(0)
    command = programs.unprivileged(
        built_runner(), "detect", "--artifact", random_path, "--ops", library_path()
    )
    done = programs.run(*command, "--image", photo, code=4)
    assert f"image {photo}: cannot be read: Permission denied" in done.stderr
    done = programs.run(*programs.unprivileged(built_runner(), "info", "--artifact", secret), code=3)
    assert f"artifact {secret}: cannot be read: Permission denied" in done.stderr


def test_the_decoder_must_fit_the_device(random_path: Path, folder: Path) -> None:
    arguments = ["--batch", 40, "--image", folder]
    assert detect(random_path, *arguments, "--decode", "auto") == detect(random_path, *arguments)
    assert "decode" in refusal(2, "detect", "--artifact", random_path, "--decode", "gpu", "--image", folder)


@pytest.mark.gpu
@pytest.mark.parametrize(("batch", "has_colors"), [(1, False), (5, False), (40, False), (40, True)])
def test_a_gpu_decodes_as_the_cpu_does(
    random_path: Path, folder: Path, batch: int, has_colors: bool, tmp_path: Path
) -> None:
    """JPEG files, turned, progressive, truncated and large ones among them, and other files."""
    for turn in range(1, 9):
        turned = jpeg_with_exif(encoded(noise("RGB", 300, 200)), exif(turn))
        (folder / f"turned{turn}.jpg").write_bytes(turned)
    noise("RGB", 257, 259).save(folder / "progressive.jpg", progressive=True)
    noise("RGB", 1400, 1400).save(folder / "large.jpg")
    (folder / "truncated.jpg").write_bytes((folder / "a.jpg").read_bytes()[:-1000])
    if has_colors:
        random_path = tmp_path / "colors.pt"
        save_artifact(RedAndBlue(), random_path)
    arguments = ["--device", "cuda", "--batch", batch, "--decode-threads", 3, "--image", folder]
    by_gpu, by_cpu = (detect(random_path, *arguments, "--decode", name, code=4) for name in ("gpu", "cpu"))
    assert by_gpu == by_cpu
