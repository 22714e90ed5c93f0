"""The bytes of a loaded file."""

import os
from pathlib import Path

import pytest

from lensbox.common.errors import ArtifactError

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs Linux' shared memory")

if hasattr(os, "memfd_create"):
    from lensbox.serve.models.content import read_content, sha256_of


def test_keeps_the_bytes_whatever_happens_to_the_file(tmp_path: Path) -> None:
    path = tmp_path / "1.pt"
    path.write_bytes(b"old" * 1_000_000)
    (tmp_path / "1.pt.sig").write_bytes(b"s" * 64)
    content = read_content(path)
    assert (content.sha256, content.signature) == (sha256_of(path), b"s" * 64)
    path.write_bytes(b"new")
    assert content.sha256 != sha256_of(path)
    other = content.copy()
    content.close()
    assert other.read() == b"old" * 1_000_000
    for change in (lambda: os.write(other.file, b"x"), lambda: os.ftruncate(other.file, 0)):
        with pytest.raises(PermissionError):
            change()
    other.close()


def test_an_empty_or_missing_file(tmp_path: Path) -> None:
    (tmp_path / "empty.pt").touch()
    assert read_content(tmp_path / "empty.pt").read() == b""
    for name, message in (("nothing.pt", "there is no file nothing.pt"), ("", "cannot be read")):
        with pytest.raises(ArtifactError, match=message):
            read_content(tmp_path / name)
