"""With a public key, only correctly signed files load; others are rejected before they are parsed."""

import builtins
import logging
import sys
from pathlib import Path

import pytest
import torch
from signing_keys import BAD_PUBLIC_KEYS, BAD_SIGNATURES, signature_of, write_signed

from lensbox.artifact import signature
from lensbox.common.errors import ArtifactError
from lensbox.runtime import loading
from lensbox.runtime.loading import load_artifact


@pytest.mark.parametrize("case", BAD_SIGNATURES)
def test_rejects_bad_signatures_before_parsing(
    case: str, artifact_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = artifact_path.read_bytes()
    signature, message = BAD_SIGNATURES[case]
    path, key = write_signed(tmp_path, data, signature(data))
    load_artifact(path)
    monkeypatch.setattr(loading, "open_file", pytest.fail)
    with pytest.raises(ArtifactError, match=rf"signed\.pt.* {message}"):
        load_artifact(path, public_key=key)


def test_loads_the_bytes_that_were_verified(
    artifact_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = artifact_path.read_bytes()
    path, key = write_signed(tmp_path, data, signature_of(data))
    check = signature.require_signature

    def check_then_exchange(file: Path, content: bytes, public_key: Path) -> None:
        check(file, content, public_key)
        file.write_bytes(b"another program")

    monkeypatch.setattr(loading, "require_signature", check_then_exchange)
    found = load_artifact(path, public_key=key).detect_image(torch.zeros(3, 40, 40, dtype=torch.uint8), 0.0)
    expected = load_artifact(artifact_path).detect_image(torch.zeros(3, 40, 40, dtype=torch.uint8), 0.0)
    assert torch.equal(found.boxes, expected.boxes)


@pytest.mark.parametrize("case", BAD_PUBLIC_KEYS)
def test_rejects_bad_public_keys(case: str, artifact_path: Path, tmp_path: Path) -> None:
    data = artifact_path.read_bytes()
    path, key = write_signed(tmp_path, data, signature_of(data))
    key.write_bytes(BAD_PUBLIC_KEYS[case])
    with pytest.raises(
        ArtifactError, match=r"release\.key\.pub must be a PEM file with an Ed25519 public key"
    ):
        load_artifact(path, public_key=key)
    key.unlink()
    with pytest.raises(ArtifactError, match=r"the public key .*release\.key\.pub cannot be read"):
        load_artifact(path, public_key=key)


def test_names_the_extra_if_cryptography_is_missing(
    artifact_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "cryptography"]:
        monkeypatch.delitem(sys.modules, name)
    import_module = builtins.__import__

    def refuse(name: str, *arguments: object, **options: object) -> object:
        if name.split(".")[0] == "cryptography":
            raise ModuleNotFoundError("No module named 'cryptography'", name="cryptography")
        return import_module(name, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", refuse)
    data = artifact_path.read_bytes()
    path, key = write_signed(tmp_path, data, signature_of(data))
    load_artifact(path)
    with pytest.raises(ArtifactError, match=r"cannot be checked: .* 'cryptography' .*\n.*lensbox\[sign\]"):
        load_artifact(path, public_key=key)


def test_logs_unsigned_files(artifact_path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = artifact_path.read_bytes()
    path, key = write_signed(tmp_path, data, signature_of(data))
    with caplog.at_level(logging.INFO):
        load_artifact(path, public_key=key)
        assert not caplog.messages
        load_artifact(path)
    assert caplog.messages == [f"{path} is unsigned: no public key was given"]


def test_verifies_before_the_file_chooses_a_device(artifact_path: Path, tmp_path: Path) -> None:
    path, key = write_signed(tmp_path, artifact_path.read_bytes(), None)
    with pytest.raises(ArtifactError, match="is not signed"):
        load_artifact(path, "auto", public_key=key)
