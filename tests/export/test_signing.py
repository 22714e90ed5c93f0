"""Keys, signatures and rejected input of `lensbox sign`."""

import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from programs import Lensbox
from signing_keys import KEY, private_pem, public_pem

from lensbox.common.errors import ExitCode
from lensbox.runtime import load_artifact


@pytest.fixture
def secret(tmp_path: Path, lensbox: Lensbox) -> Path:
    """Return a private key that the command made."""
    path = tmp_path / "release.key"
    assert lensbox("sign", "--new-key", path)[0] == f"{path}\n{path}.pub\n"
    return path


def test_signs_with_a_new_key(secret: Path, artifact_path: Path, tmp_path: Path, lensbox: Lensbox) -> None:
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert secret.read_bytes().startswith(b"-----BEGIN PRIVATE KEY-----\n")
    paths = [tmp_path / "one.pt", tmp_path / "two.pt"]
    for path in paths:
        shutil.copyfile(artifact_path, path)
    printed, _ = lensbox("sign", "--key", secret, "--artifact", *paths)
    assert printed == "".join(f"{path}.sig\n" for path in paths)
    for path in paths:
        assert len((tmp_path / f"{path.name}.sig").read_bytes()) == 64
        load_artifact(path, public_key=f"{secret}.pub")


@pytest.mark.parametrize("existing", ["release.key", "release.key.pub"])
def test_never_overwrites_a_key(existing: str, tmp_path: Path, lensbox: Lensbox) -> None:
    (tmp_path / existing).write_text("a key that somebody relies on")
    _, said = lensbox("sign", "--new-key", tmp_path / "release.key", code=ExitCode.BAD_INPUT)
    assert f"{tmp_path / existing} exists already, and a key is never overwritten" in said
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        existing: "a key that somebody relies on"
    }


def test_rejects_bad_keys_missing_files_and_files_without_a_seal(
    secret: Path, tmp_path: Path, lensbox: Lensbox
) -> None:
    path, absent, other = tmp_path / "detector.pt", tmp_path / "absent", tmp_path / "key"
    path.write_bytes(b"content")
    not_private = "must be a PEM file with an Ed25519 private key"
    encrypted = private_pem(KEY, b"password")
    for content, message in ((b"", not_private), (public_pem(KEY), not_private), (encrypted, "is encrypted")):
        other.write_bytes(content)
        _, said = lensbox("sign", "--key", other, "--artifact", path, code=ExitCode.BAD_INPUT)
        assert f"lensbox sign: {other} {message}" in said
    for words, code, message in (
        (["--key", secret, "--artifact", path], ExitCode.BAD_INPUT, f"{path} is damaged or no artifact"),
        (["--key", secret, "--artifact", absent], ExitCode.UNUSABLE, str(absent)),
        (["--key", absent, "--artifact", secret], ExitCode.UNUSABLE, str(absent)),
        (["--new-key", absent / "key"], ExitCode.UNUSABLE, str(absent)),
    ):
        assert message in lensbox("sign", *words, code=code)[1]
    assert not (tmp_path / "detector.pt.sig").exists()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_openssl_verifies_the_signature(
    secret: Path, artifact_path: Path, tmp_path: Path, lensbox: Lensbox
) -> None:
    path = tmp_path / "detector.pt"
    shutil.copyfile(artifact_path, path)
    lensbox("sign", "--key", secret, "--artifact", path)
    seal = tmp_path / "seal"
    seal.write_bytes(path.read_bytes()[-64:])  # tail -c 64
    check = f"openssl pkeyutl -verify -pubin -inkey {secret}.pub -rawin -in {seal} -sigfile {path}.sig"
    assert "Verified Successfully" in subprocess.check_output(check.split(), text=True)
    seal.write_bytes(b"0" * 64)
    assert subprocess.run(check.split(), capture_output=True).returncode != 0
