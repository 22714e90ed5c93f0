"""The seal detects damage before a file is parsed; with a public key, only signed files load.

`tests/runtimes/test_altered.py` has bad signatures.
"""

import io
import logging
import random
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from damaged_files import archive_of, with_bit_flipped
from signing_keys import signature_of, write_signed

from lensbox.common.errors import ArtifactError
from lensbox.runtime import loading
from lensbox.runtime.file import seal
from lensbox.runtime.file.seal import MARKER, check_seal, seal_of, sealed_onnx, sealed_zip
from lensbox.runtime.loading import load_artifact

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


# --- the signature ---


def test_verifies_before_parsing(
    artifact_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = artifact_path.read_bytes()
    path, key = write_signed(tmp_path, data, signature_of(data[:-1]))
    monkeypatch.setattr(loading, "open_file", pytest.fail)
    with pytest.raises(ArtifactError, match="does not match"):
        load_artifact(path, public_key=key)


def test_loads_the_bytes_that_were_verified(
    artifact_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = artifact_path.read_bytes()
    path, key = write_signed(tmp_path, data, signature_of(data))
    check = seal.require_signature

    def check_then_exchange(file: Path, content: bytes, public_key: Path) -> None:
        check(file, content, public_key)
        file.write_bytes(b"another program")

    monkeypatch.setattr(loading, "require_signature", check_then_exchange)
    found = load_artifact(path, public_key=key).detect_image(torch.zeros(3, 40, 40, dtype=torch.uint8), 0.0)
    expected = load_artifact(artifact_path).detect_image(torch.zeros(3, 40, 40, dtype=torch.uint8), 0.0)
    assert torch.equal(found.boxes, expected.boxes)


def test_names_the_extra_if_cryptography_is_missing(
    artifact_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "cryptography"]:
        monkeypatch.setitem(sys.modules, name, None)
    data = artifact_path.read_bytes()
    path, key = write_signed(tmp_path, data, signature_of(data))
    load_artifact(path)
    with pytest.raises(ArtifactError, match=r"cannot be checked: .*cryptography.*\n.*lensbox\[sign\]"):
        load_artifact(path, public_key=key)


def test_logs_unsigned_files(artifact_path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = artifact_path.read_bytes()
    path, key = write_signed(tmp_path, data, signature_of(data))
    with caplog.at_level(logging.INFO):
        load_artifact(path, public_key=key)
        assert not caplog.messages
        load_artifact(path)
    assert caplog.messages == [f"{path} is unsigned: no public key was given"]
