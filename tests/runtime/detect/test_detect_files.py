"""`detect_files`: results in order, threads that read ahead, and errors per file."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from picture_files import encoded, noise
from waiting import PATIENCE

from lensbox.common.errors import InputError
from lensbox.runtime import Artifact, Detections
from lensbox.runtime.detect.detect_files import in_batches


@pytest.fixture(scope="module")
def files() -> list[bytes]:
    """Photographs of eight sizes as JPEG and PNG."""
    sizes = [(700 - 60 * index, 300 + 90 * index) for index in range(8)]
    return [encoded(noise("RGB", *size), ("JPEG", "PNG")[index % 2]) for index, size in enumerate(sizes)]


def reading_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("lensbox-read")]


@pytest.mark.parametrize(("batch_size", "threads"), [(1, 1), (3, 2), (8, 3), (100, None)])
def test_yields_a_result_for_each_file_in_order(
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


def test_yields_an_error_for_a_bad_file(artifact: Artifact, files: list[bytes], tmp_path: Path) -> None:
    missing = tmp_path / "missing.jpg"
    sources: list[str | Path | bytes] = [b"", files[0], missing, tmp_path, files[1][:200], files[2]]
    found = list(artifact.detect_files(sources, batch_size=2, threads=2))
    assert [isinstance(one, InputError) for one in found] == [True, False, True, True, True, False]
    assert str(found[2]) == f"source must be an image file, got {missing}"
    assert "the image data must be an image that can be decoded: damaged or truncated" in str(found[4])
    assert all(isinstance(one, InputError) for one in artifact.detect_files([b"1", b"2", b"3"], 2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"threads": 0}, "threads must be at least 1, or None, got 0"),
        ({"orientation": "up"}, "orientation must be 'exif' or 'stored', got 'up'"),
        ({"score_threshold": 2}, "score_threshold must be between 0 and 1, got 2"),
    ],
)
def test_rejects_wrong_options_at_once(artifact: Artifact, options: dict[str, Any], message: str) -> None:
    assert list(artifact.detect_files([])) == []
    with pytest.raises(ValueError, match=message):
        artifact.detect_files([], **options)


def test_closing_leaves_no_thread(artifact: Artifact, files: list[bytes]) -> None:
    found = artifact.detect_files(files * 20, batch_size=2, threads=3)
    assert isinstance(next(found), Detections)
    assert reading_threads()
    found.close()
    assert reading_threads() == []
    never_begun = artifact.detect_files(files)
    never_begun.close()
    assert reading_threads() == []


def test_raises_errors_that_no_file_causes(
    artifact: Artifact, files: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    fail = Mock(side_effect=MemoryError("no more"))
    monkeypatch.setattr("lensbox.runtime.detect.detect_files.read_photo", fail)
    with pytest.raises(MemoryError, match="no more"):
        list(artifact.detect_files(files))
    assert reading_threads() == []


@pytest.mark.parametrize(("batch_size", "threads"), [(4, 2), (1, 5), (50, 2), (9, 2)])
def test_limits_the_files_read_ahead(batch_size: int, threads: int) -> None:
    taken = 0

    def files() -> Iterator[int]:
        nonlocal taken
        while True:
            taken += 1
            yield taken - 1

    batches = in_batches(lambda numbers: numbers, files(), batch_size, threads)
    assert taken == 0
    for number in range(5):
        assert next(batches) == [number * batch_size + index for index in range(batch_size)]
        assert 0 <= (number + 1) * batch_size + batch_size + max(batch_size, threads) - taken < 8
    batches.close()
    assert reading_threads() == []


def test_threads_read_concurrently() -> None:
    together = threading.Barrier(3, timeout=PATIENCE)

    def read(numbers: list[int]) -> list[int]:
        together.wait()
        return numbers

    assert list(in_batches(read, range(6), 2, 3)) == [[0, 1], [2, 3], [4, 5]]
