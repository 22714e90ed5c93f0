"""Atomic writes: the whole new file, or the old one."""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from lensbox.common.files import atomic_write


def test_content_folders_and_permissions(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "folder" / "file"
    atomic_write(path, b"first")
    atomic_write(str(path), b"second")
    assert path.read_bytes() == b"second"
    plain = tmp_path / "plain"
    plain.touch()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)
    assert [file.name for file in path.parent.iterdir()] == ["file"]


FULL = OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("target", "name", "broken"),
    [
        (Path, "open", lambda _, mode: open("/dev/full", mode)),  # noqa: PTH123, SIM115
        (os, "fsync", Mock(side_effect=FULL)),
        (Path, "replace", Mock(side_effect=FULL)),
    ],
)
def test_a_failure_leaves_only_the_old_file(
    target: object, name: str, broken: Callable[..., object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    monkeypatch.setattr(target, name, broken)
    with pytest.raises(OSError, match=r"cannot be written: No space left on device: '.*file'") as caught:
        atomic_write(path, b"new" * 100_000)
    assert caught.value.errno == 28
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_keeps_symbolic_links(tmp_path: Path) -> None:
    target, link = tmp_path / "disk" / "file", tmp_path / "file"
    target.parent.mkdir()
    for content in (b"the file is not there yet", b"now it is"):
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        atomic_write(link, content)
        assert link.is_symlink()
        assert target.read_bytes() == content


def test_writes_to_devices_and_pipes(tmp_path: Path) -> None:
    """Otherwise `--json /dev/null` would replace the device if root runs it."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        atomic_write(pipe, b"content")
        assert os.read(reader, 100) == b"content"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert list(tmp_path.iterdir()) == [pipe]
