"""The seal detects damage before a file is parsed. `test_loading.py` has the signature."""

import io
import random
import zipfile
from pathlib import Path

import pytest
from damaged_files import archive_of, with_bit_flipped

from lensbox.runtime.file.seal import MARKER, check_seal, seal_of, sealed_onnx, sealed_zip

_ARCHIVE = archive_of([("detector/extra/lensbox.json", b"{}"), ("detector/data.pkl", bytes(5000))])
_MODEL = sealed_onnx(b"\x08\x09" + bytes(3000))


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


def test_rejects_archives_with_a_comment_and_other_files() -> None:
    for data in (_ARCHIVE, b"text"):
        with pytest.raises(ValueError, match="a zip archive without a comment"):
            sealed_zip(data)


def test_python_reads_a_sealed_archive() -> None:
    with zipfile.ZipFile(io.BytesIO(_ARCHIVE)) as archive:
        assert archive.comment == MARKER + b"=" + seal_of(_ARCHIVE)
        assert archive.testzip() is None
        assert archive.read("detector/data.pkl") == bytes(5000)
