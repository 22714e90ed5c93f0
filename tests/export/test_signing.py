"""`lensbox sign`: keys, signatures, and what it refuses."""

import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from damaged_files import archive_of
from signing_keys import KEY, private_pem, public_pem

from lensbox.common.errors import ArtifactError, ExitCode
from lensbox.common.main import main
from lensbox.runtime import load_artifact


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A private key that the command made."""
    path = tmp_path / "release.key"
    assert main(["sign", "--new-key", str(path)]) == 0
    return path


def test_keys_and_signature_fit(
    artifact_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secret, public = tmp_path / "release.key", tmp_path / "release.key.pub"
    assert main(["sign", "--new-key", str(secret)]) == 0
    assert capsys.readouterr().out == f"{secret}\n{public}\n"
    paths = [tmp_path / "one.pt", tmp_path / "two.pt"]
    for path in paths:
        shutil.copyfile(artifact_path, path)
    assert main(["sign", "--key", str(secret), "--artifact", *map(str, paths)]) == 0
    assert capsys.readouterr().out == "".join(f"{path}.sig\n" for path in paths)
    for path in paths:
        assert len((tmp_path / f"{path.name}.sig").read_bytes()) == 64
        assert load_artifact(path, public_key=public).self_test().passed


def test_only_the_owner_reads_the_private_key(secret: Path) -> None:
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert secret.read_bytes().startswith(b"-----BEGIN PRIVATE KEY-----\n")


@pytest.mark.parametrize("existing", ["release.key", "release.key.pub"])
def test_no_key_is_overwritten(existing: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / existing).write_text("a key that somebody relies on")
    assert main(["sign", "--new-key", str(tmp_path / "release.key")]) == ExitCode.BAD_INPUT
    assert f"{tmp_path / existing} exists already, and a key is never overwritten" in capsys.readouterr().err
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        existing: "a key that somebody relies on"
    }


def test_a_file_that_is_exported_again_is_signed_again(
    secret: Path, artifact_path: Path, tmp_path: Path
) -> None:
    path, public = tmp_path / "detector.pt", tmp_path / "release.key.pub"
    path.write_bytes(archive_of([("detector/an older one", b"")]))
    assert main(["sign", "--key", str(secret), "--artifact", str(path)]) == 0
    shutil.copyfile(artifact_path, path)
    with pytest.raises(ArtifactError, match="does not match"):
        load_artifact(path, public_key=public)
    assert main(["sign", "--key", str(secret), "--artifact", str(path)]) == 0
    load_artifact(path, public_key=public)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "must be a PEM file with an Ed25519 private key"),
        (public_pem(KEY), "must be a PEM file with an Ed25519 private key"),
        (private_pem(KEY, b"password"), "is encrypted; `openssl pkey"),
    ],
    ids=["empty", "public", "encrypted"],
)
def test_what_is_no_private_key(
    content: bytes, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key, path = tmp_path / "key", tmp_path / "detector.pt"
    key.write_bytes(content)
    path.write_bytes(b"content")
    assert main(["sign", "--key", str(key), "--artifact", str(path)]) == ExitCode.BAD_INPUT
    assert f"lensbox sign: {key} {message}" in capsys.readouterr().err
    assert not (tmp_path / "detector.pt.sig").exists()


def test_a_file_without_a_seal(secret: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "detector.pt"
    path.write_bytes(b"content")
    assert main(["sign", "--key", str(secret), "--artifact", str(path)]) == ExitCode.BAD_INPUT
    assert f"{path} is damaged or no artifact" in capsys.readouterr().err


def test_files_that_are_not_there(secret: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    absent = str(tmp_path / "absent")
    for words in (
        ["--key", str(secret), "--artifact", absent],
        ["--key", absent, "--artifact", str(secret)],
        ["--new-key", f"{absent}/key"],
    ):
        assert main(["sign", *words]) == ExitCode.UNUSABLE
        assert absent in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "give --new-key FILE alone, or --key FILE with --artifact FILE"),
        ("--new-key a --key b", "give --new-key FILE alone"),
        ("--new-key a --artifact b", "give --new-key FILE alone"),
        ("--key a", "--key and --artifact must be given together"),
        ("--artifact a", "--key and --artifact must be given together"),
    ],
)
def test_options_that_do_not_go_together(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sign", *words.split()]) == ExitCode.USAGE
    assert message in capsys.readouterr().err


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_openssl_checks_the_signature(secret: Path, artifact_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "detector.pt"
    shutil.copyfile(artifact_path, path)
    assert main(["sign", "--key", str(secret), "--artifact", str(path)]) == 0
    seal = tmp_path / "seal"
    seal.write_bytes(path.read_bytes()[-64:])  # tail -c 64
    check = f"openssl pkeyutl -verify -pubin -inkey {secret}.pub -rawin -in {seal} -sigfile {path}.sig"
    assert "Verified Successfully" in subprocess.check_output(check.split(), text=True)
    seal.write_bytes(b"0" * 64)
    assert subprocess.run(check.split(), capture_output=True).returncode != 0
