"""Many files: in order, in threads ahead of the device, and each for itself."""

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
import torch
from picture_files import encoded
from waiting import wait_until

from lensbox.common.errors import InputError
from lensbox.runtime.artifact import Artifact
from lensbox.runtime.detection import Detections
from lensbox.runtime.images.files import read_batches
from lensbox.runtime.images.photo import Photo
from lensbox.runtime.loading import load_artifact

PATIENCE = 60.0


@pytest.fixture(scope="module")
def artifact(artifact_path: Path) -> Artifact:
    return load_artifact(artifact_path)


@pytest.fixture(scope="module")
def files() -> list[bytes]:
    """Photographs of eight sizes as JPEG and PNG."""
    generator = np.random.default_rng(4)
    made = []
    for index in range(8):
        coarse = generator.integers(0, 256, (6, 5 + index, 3), dtype=np.uint8)
        picture = PIL.Image.fromarray(coarse).resize((700 - 60 * index, 300 + 90 * index))
        made.append(encoded(picture, "PNG" if index % 2 else "JPEG"))
    return made


def reading_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("lensbox-read")]


@pytest.mark.parametrize(("batch_size", "threads"), [(1, 1), (3, 2), (8, 3), (100, None)])
def test_a_result_for_each_file_in_their_order(
    artifact: Artifact, files: list[bytes], tmp_path: Path, batch_size: int, threads: int | None
) -> None:
    path = tmp_path / "photo.png"
    path.write_bytes(files[1])
    sources: list[str | Path | bytes] = [files[0], path, str(path), *files[3:]]
    found = list(artifact.detect_files(sources, batch_size, threads, 0.03))
    assert len(found) == len(sources)
    for one, source in zip(found, sources, strict=True):
        assert isinstance(one, Detections)
        expected = artifact.detect_image(artifact.read_photo(source), 0.03)
        torch.testing.assert_close(one.scores, expected.scores, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(one.boxes, expected.boxes, rtol=1e-4, atol=0.02)
    assert reading_threads() == []


def test_a_bad_file_is_a_result_and_stops_nothing(
    artifact: Artifact, files: list[bytes], tmp_path: Path
) -> None:
    sources: list[str | Path | bytes] = [
        b"",
        files[0],
        tmp_path / "missing.jpg",
        tmp_path,
        files[1][:200],
        files[2],
    ]
    found = list(artifact.detect_files(sources, batch_size=2, threads=2))
    assert [type(one) for one in found] == [
        InputError,
        Detections,
        InputError,
        InputError,
        InputError,
        Detections,
    ]
    assert str(found[2]) == f"source must be an image file, got {tmp_path / 'missing.jpg'}"
    assert "the image data must be an image that Pillow can decode: broken PNG file" in str(found[4])
    assert all(isinstance(one, InputError) for one in artifact.detect_files([b"1", b"2", b"3"], 2))


def test_no_files(artifact: Artifact) -> None:
    assert list(artifact.detect_files([])) == []


def test_bad_numbers_are_refused_at_once(artifact: Artifact) -> None:
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        artifact.detect_files([], batch_size=0)
    with pytest.raises(ValueError, match="threads must be at least 1, or None, got 0"):
        artifact.detect_files([], threads=0)
    with pytest.raises(ValueError, match="orientation must be 'exif' or 'stored', got 'up'"):
        artifact.detect_files([], orientation="up")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="score_threshold must be between 0 and 1, got 2"):
        artifact.detect_files([], score_threshold=2)


def test_closed_early_it_leaves_no_thread(artifact: Artifact, files: list[bytes]) -> None:
    found = artifact.detect_files(files * 20, batch_size=2, threads=3)
    assert isinstance(next(found), Detections)
    assert reading_threads()
    found.close()
    assert reading_threads() == []
    never_begun = artifact.detect_files(files)
    never_begun.close()
    assert reading_threads() == []


def test_an_error_that_no_file_is_to_blame_for_ends_it(
    artifact: Artifact, files: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Photo:
        raise MemoryError("no more")

    monkeypatch.setattr("lensbox.runtime.artifact.read_photo", fail)
    with pytest.raises(MemoryError, match="no more"):
        list(artifact.detect_files(files))
    assert reading_threads() == []


class Reader:
    """Counts what was asked for, and what is being read; while `gate` is closed, reading waits."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.lock = threading.Lock()
        self.taken = 0
        self.at_once = 0
        self.most_at_once = 0

    def files(self) -> Iterator[int]:
        """Yield paths without an end."""
        while True:
            self.taken += 1
            yield self.taken - 1

    def read(self, number: int) -> Photo:
        with self.lock:
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        assert self.gate.wait(PATIENCE)
        with self.lock:
            self.at_once -= 1
        return Photo.of(torch.full((1, 1, 1), number, dtype=torch.uint8))


@pytest.mark.parametrize(("batch_size", "threads", "ahead"), [(4, 2, 8), (1, 5, 6), (50, 2, 100), (9, 2, 18)])
def test_it_reads_ahead_and_no_further(batch_size: int, threads: int, ahead: int) -> None:
    reader = Reader()
    reader.gate.set()
    batches = read_batches(reader.files(), reader.read, batch_size, threads)
    assert reader.taken == 0
    for number in range(5):
        batch = next(batches)
        assert [int(photo.pixels) for photo in batch if isinstance(photo, Photo)] == [
            number * batch_size + index for index in range(batch_size)
        ]
        assert reader.taken == (number + 1) * batch_size + ahead
    batches.close()
    assert reading_threads() == []
    assert reader.most_at_once <= threads


def test_files_are_read_at_once_while_nobody_asks() -> None:
    reader = Reader()
    results: list[int] = []
    batches = read_batches(reader.files(), reader.read, 2, 3)
    asking = threading.Thread(target=lambda: results.append(len(next(batches))))
    asking.start()
    wait_until(lambda: reader.at_once == 3)
    reader.gate.set()
    asking.join(PATIENCE)
    assert results == [2]
    batches.close()
