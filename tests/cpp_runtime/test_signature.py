"""Signatures: the program runs what the owner of the key signed, and looks at nothing else."""

from pathlib import Path

import pytest
from cpp_runtime.running import Run
from damaged_files import with_bit_flipped
from signing_keys import BAD_PUBLIC_KEYS, BAD_SIGNATURES, signature_of, write_signed


@pytest.mark.parametrize("command", ["info", "selftest"])
def test_a_signed_artifact_runs(run: Run, artifact: Path, tmp_path: Path, command: str) -> None:
    data = artifact.read_bytes()
    path, key = write_signed(tmp_path, data, signature_of(data))
    result = run(command, "--artifact", path, "--public-key", key)
    assert result.code == 0, result.stderr


@pytest.mark.parametrize("case", BAD_SIGNATURES)
def test_refuses_another_signature(case: str, run: Run, artifact: Path, tmp_path: Path) -> None:
    data = artifact.read_bytes()
    signature, message = BAD_SIGNATURES[case]
    path, key = write_signed(tmp_path, data, signature(data))
    result = run("selftest", "--artifact", path, "--public-key", key)
    assert (result.code, result.stdout) == (3, "")
    assert "signed.pt" in result.stderr
    assert message in result.stderr


@pytest.mark.parametrize("case", BAD_PUBLIC_KEYS)
def test_refuses_a_malformed_public_key(case: str, run: Run, artifact: Path, tmp_path: Path) -> None:
    data = artifact.read_bytes()
    path, key = write_signed(tmp_path, data, signature_of(data))
    key.write_bytes(BAD_PUBLIC_KEYS[case])
    result = run("info", "--artifact", path, "--public-key", key)
    assert (result.code, result.stdout) == (3, "")
    assert "release.key.pub: must be a PEM file with an Ed25519 public key" in result.stderr


def test_refuses_an_absent_public_key(run: Run, artifact: Path, tmp_path: Path) -> None:
    for key, reason in ((tmp_path / "none.pub", "no such file"), (tmp_path, "not a file")):
        result = run("info", "--artifact", artifact, "--public-key", key)
        assert (result.code, result.stdout) == (3, "")
        assert f"public key {key}: {reason}" in result.stderr


def test_refuses_a_signed_file_that_was_damaged(run: Run, artifact: Path, tmp_path: Path) -> None:
    data = artifact.read_bytes()
    path, key = write_signed(tmp_path, data, signature_of(data))
    path.write_bytes(with_bit_flipped(data, 1000))
    result = run("info", "--artifact", path, "--public-key", key)
    assert (result.code, result.stdout) == (3, "")
    assert "its SHA-256 does not match its seal" in result.stderr
