"""detect of files: thresholds, bad files in batches, orientation.

`tests/runtimes/test_named_outputs.py` compares batches and files read beside the detector with Python.
"""

from pathlib import Path

import PIL.Image
import PIL.ImageOps
import pytest
import torch
from cpp_runtime.image_files import noise
from cpp_runtime.running import Rewrite, Run

from lensbox.runtime.loading import load_artifact

ORIENTATION = 0x0112


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    path = tmp_path / "photo.png"
    noise("RGB").save(path)
    return path


def test_bad_files_do_not_affect_the_rest_of_a_batch(run: Run, artifact: Path, tmp_path: Path) -> None:
    photos = [tmp_path / f"{size}.{ending}" for size in (90, 640, 31) for ending in ("jpg", "png")]
    for path in photos:
        noise("RGB", int(path.stem), 200).save(path)
    text, truncated = tmp_path / "text.jpg", tmp_path / "truncated.png"
    text.write_text("no image")
    truncated.write_bytes(photos[1].read_bytes()[:-20])
    files = [text, text, photos[0], tmp_path / "absent", *photos[1:5], truncated, photos[5], text]
    for options in ([], ["--batch", "3", "--decode-threads", "2"], ["--batch", "50"]):
        result = run("detect", "--artifact", artifact, *options, "--image", *files)
        assert result.code == 4
        entries = result.json()["images"]
        assert [entry["file"] for entry in entries] == [str(file) for file in files]
        good = [entry for entry in entries if "error" not in entry]
        assert [Path(entry["file"]) for entry in good] == photos[:6]
        assert any(entry["detections"] for entry in good)
        errors = [entry["error"] for entry in entries if "error" in entry]
        assert result.stderr.splitlines() == [f"lensbox_runner: {error}" for error in errors]
    only_bad = run("detect", "--artifact", artifact, "--batch", "2", "--image", text, text, text)
    assert (only_bad.code, len(only_bad.json()["images"])) == (4, 3)


def test_orientation_defaults_to_the_artifact(
    run: Run, artifact: Path, rewrite: Rewrite, tmp_path: Path
) -> None:
    photo = tmp_path / "photo.jpg"
    exif = PIL.Image.Exif()
    exif[ORIENTATION] = 8
    noise("RGB", 90, 50).save(photo, exif=exif)
    stored = rewrite(lambda metadata: metadata["reading"].update(orientation="stored"))

    def width(path: Path, *options: str) -> int:
        return int(run("detect", "--artifact", path, "--image", photo, *options).json()["images"][0]["width"])

    assert (width(artifact), width(stored), width(stored, "--orientation", "exif")) == (50, 90, 50)


def test_thresholds_default_to_the_artifact_and_can_be_given(run: Run, artifact: Path, photo: Path) -> None:
    def count(*options: str) -> int:
        result = run("detect", "--artifact", artifact, "--image", photo, *options)
        return len(result.json()["images"][0]["detections"])

    default = count()
    assert default == count("--score-threshold", "0.0104", "--iou-threshold", "0.5")
    assert count("--score-threshold", "1") == 0 < default
    assert count("--score-threshold", "0") > default
    assert count("--iou-threshold", "0") < count("--iou-threshold", "1")


def test_a_file_name_that_is_not_utf8(run: Run, artifact: Path, tmp_path: Path) -> None:
    path = tmp_path / b"caf\xe9.png".decode(errors="surrogateescape")
    noise("RGB").save(path)
    result = run("detect", "--artifact", artifact, "--image", path)
    assert result.code == 0
    assert result.json()["images"][0]["file"].endswith("caf\ufffd.png")


def test_output_can_be_piped_to_loss(run: Run, artifact: Path, photo: Path, tmp_path: Path) -> None:
    found = run("detect", "--artifact", artifact, "--image", photo)
    targets = tmp_path / "targets.json"
    targets.write_text(found.stdout)
    files = ["--predictions", "-", "--targets", targets]
    result = run("loss", "--artifact", artifact, *files, stdin=found.stdout)
    assert result.code == 0, result.stderr
    boxes = torch.tensor([entry["box"] for entry in found.json()["images"][0]["detections"]])
    loss = load_artifact(artifact).loss(boxes, boxes)
    assert result.json() == {"loss": pytest.approx(loss, abs=1e-6), "slots": len(boxes)}
