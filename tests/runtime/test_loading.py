"""Loading with a public key: the signature is checked before anything is parsed.

`tests/runtimes/test_altered.py` has bad signatures.
"""

import logging
import sys
from pathlib import Path

import pytest
import torch
from signing_keys import signature_of, write_signed

from lensbox.runtime import ArtifactError, load_artifact, loading


@pytest.fixture
def signed(artifact_path: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Return the paths of a signed artifact and of its public key."""
    data = artifact_path.read_bytes()
    return write_signed(tmp_path, data, signature_of(data))


def test_verifies_before_parsing(signed: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    path, key = signed
    path.with_name("signed.pt.sig").write_bytes(bytes(64))
    monkeypatch.setattr(loading, "open_file", pytest.fail)
    with pytest.raises(ArtifactError, match="does not match"):
        load_artifact(path, public_key=key)


def test_loads_the_bytes_that_were_verified(
    artifact_path: Path, signed: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, key = signed
    monkeypatch.setattr(loading, "check_signature", lambda *_: path.write_bytes(b"another program"))
    found = load_artifact(path, public_key=key).detect_image(torch.zeros(3, 40, 40, dtype=torch.uint8), 0.0)
    expected = load_artifact(artifact_path).detect_image(torch.zeros(3, 40, 40, dtype=torch.uint8), 0.0)
    assert torch.equal(found.boxes, expected.boxes)


def test_names_the_extra_if_cryptography_is_missing(
    signed: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, key = signed
    for name in [name for name in sys.modules if name.split(".")[0] == "cryptography"]:
        monkeypatch.setitem(sys.modules, name, None)
    load_artifact(path)
    with pytest.raises(ArtifactError, match=r"cannot be checked: .*cryptography.*\n.*lensbox\[sign\]"):
        load_artifact(path, public_key=key)


def test_logs_unsigned_files(signed: tuple[Path, Path], caplog: pytest.LogCaptureFixture) -> None:
    path, key = signed
    with caplog.at_level(logging.INFO):
        load_artifact(path, public_key=key)
        assert not caplog.messages
        load_artifact(path)
        load_artifact(path)  # said once
    assert caplog.messages == [f"{path} is unsigned: no public key was given"]
