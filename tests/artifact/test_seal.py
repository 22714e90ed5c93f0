"""The seal detects damage before a file is parsed; zip readers accept sealed files."""

import io
import random
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from damaged_files import archive_of, with_bit_flipped

from lensbox.artifact.seal import MARKER, check_seal, seal_of, sealed_onnx, sealed_zip

_ARCHIVE = archive_of([("detector/extra/lensbox.json", b"{}"), ("detector/data.pkl", bytes(5000))])
_MODEL = sealed_onnx(b"\x08\x09" + bytes(3000))


@pytest.mark.parametrize("data", [_ARCHIVE, _MODEL], ids=["zip", "onnx"])
def test_sealed_files_end_with_their_hash(data: bytes) -> None:
    check_seal(data)
    assert MARKER in data[:-64]
    assert seal_of(data) == data[-64:]


def test_detects_500_single_flipped_bits(artifact_path: Path, onnx_path: Path) -> None:
    rng = random.Random(0)
    for path in (artifact_path, onnx_path):
        data = path.read_bytes()
        for _ in range(250):
            changed = with_bit_flipped(data, rng.randrange(len(data)), rng.randrange(8))
            with pytest.raises(ValueError, match="seal"):
                check_seal(changed)


@pytest.mark.parametrize("data", [_ARCHIVE, _MODEL], ids=["zip", "onnx"])
def test_detects_each_flipped_byte_of_the_seal(data: bytes) -> None:
    for position in range(-80, 0):
        with pytest.raises(ValueError, match="seal"):
            check_seal(with_bit_flipped(data, position))


@pytest.mark.parametrize(
    "change", [lambda data: b"", lambda data: data[-64:], lambda data: data[:-64] + data[-64:].upper()]
)
def test_detects_files_without_content(change: Callable[[bytes], bytes]) -> None:
    with pytest.raises(ValueError, match="seal"):
        check_seal(change(_ARCHIVE))


def test_rejects_archives_with_a_comment_and_other_files() -> None:
    for data in (_ARCHIVE, b"text"):
        with pytest.raises(ValueError, match="a zip archive without a comment"):
            sealed_zip(data)


def test_python_reads_a_sealed_archive() -> None:
    with zipfile.ZipFile(io.BytesIO(_ARCHIVE)) as archive:
        assert archive.comment == MARKER + b"=" + seal_of(_ARCHIVE)
        assert archive.testzip() is None
        assert archive.read("detector/data.pkl") == bytes(5000)
