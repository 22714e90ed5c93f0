"""The seal detects damage before a file is parsed. `test_loading.py` has the signature."""

import pytest
from damaged_files import archive_of, with_bit_flipped

from lensbox.common.errors import ArtifactError
from lensbox.runtime.file.seal import check_seal, sealed_onnx, sealed_zip

_ARCHIVE = archive_of([("detector/extra/lensbox.json", b"{}"), ("detector/data.pkl", bytes(5000))])
_MODEL = sealed_onnx(b"\x08\x09" + bytes(3000))


@pytest.mark.parametrize("data", [_ARCHIVE, _MODEL], ids=["zip", "onnx"])
def test_detects_each_flipped_byte(data: bytes) -> None:
    for position in range(len(data)):
        with pytest.raises(ArtifactError, match=r"a\.pt is damaged .* seal"):
            check_seal(with_bit_flipped(data, position), "a.pt")


def test_rejects_archives_with_a_comment_and_other_files() -> None:
    for data in (_ARCHIVE, b"text"):
        with pytest.raises(ValueError, match="a zip archive without a comment"):
            sealed_zip(data)
