"""Atomic writes: the whole new file, or the old one. Reads of what may never end."""

import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest
from programs import Lensbox, run_lensbox

from lensbox.common import files
from lensbox.common.files import atomic_write, read_input, read_regular


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


# --- pipes and devices, which may never end ---


def test_reads_files_and_pipes_that_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_PIPED", 100_000)
    file, pipe = tmp_path / "file", tmp_path / "pipe"
    os.mkfifo(pipe)
    file.write_bytes(bytes(200_000))
    assert read_regular(file) == read_input(file) == bytes(200_000)
    assert read_input(pipe) == b""  # nobody writes
    for size in (100_000, 100_001):
        with subprocess.Popen(["head", "-c", str(size), "/dev/zero"], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            place = f"/dev/fd/{writer.stdout.fileno()}"  # as a shell's <(...)
            if size > 100_000:
                with pytest.raises(OSError, match="pipe or device must have at most 100000 bytes"):
                    read_input(place)
            else:
                assert len(read_input(place)) == size
    for endless in (pipe, "/dev/zero", tmp_path):
        with pytest.raises(OSError, match=r"must be a regular file|Is a directory"):
            read_regular(endless)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("detect --artifact pipe photo.jpg", 3),
        ("detect --artifact ARTIFACT pipe", 4),
        ("detect --artifact ARTIFACT --ops pipe photo.jpg", 3),
        ("detect --artifact ARTIFACT --public-key /dev/zero photo.jpg", 3),
        ("detect --artifact ARTIFACT --format coco --coco-file pipe photo.jpg", 4),
        ("info pipe", 3),
        ("bench --url http://127.0.0.1:1 /dev/zero", 4),
        ("sign --artifact pipe --key own.key", 3),
        ("sign --artifact ARTIFACT --key /dev/zero", 3),
        ("sign --artifact ARTIFACT --key pipe", 4),
        ("export --weights pipe --output out.pt", 4),
        ("evaluate --artifact ARTIFACT --data pipe", 4),
        ("evaluate --artifact ARTIFACT --data wider", 4),
        ("evaluate --artifact ARTIFACT --data coco", 4),
        ("train --data pipe --output run", 4),
        ("train --data photo.jpg --config /dev/zero --output run", 2),
        ("train --data photo.jpg --resume --output resumed", 2),
        ("serve --artifact pipe --port 0", 3),
        ("serve --artifact ARTIFACT --port 0 --api-keys-file /dev/zero", 3),
        ("serve --artifact ARTIFACT --port 0 --tls-certificate pipe --tls-key pipe", 3),
    ],
)
def test_a_command_refuses_a_file_without_end(
    words: str,
    code: int,
    lensbox: Lensbox,
    random_path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    for name in ("wider/x_bbx_gt.txt", "coco/x.json", "resumed/checkpoint.pt"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).symlink_to("../pipe")
    (tmp_path / "photo.jpg").touch()
    lensbox("sign", "--new-key", "own.key")
    run = run_lensbox if words.startswith("serve") else lensbox  # `serve` ends its process
    run(*words.replace("ARTIFACT", str(random_path)).split(), code=code)
