"""The program with standard streams other than a shell's."""

import fcntl
import os
import select
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lensbox.ops import library_path

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start(runner: Path) -> Start:
    """Starts the program; streams that are not given are pipes."""

    def start_program(*arguments: str | Path, **options: Any) -> "subprocess.Popen[bytes]":
        environment = {**os.environ, "LENSBOX_OPS_LIBRARY": str(library_path())}
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        return subprocess.Popen([runner, *arguments], env=environment, **{**streams, **options})

    return start_program


def finish(process: "subprocess.Popen[bytes]") -> tuple[int, str]:
    """Exit code and stderr."""
    try:
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    return process.returncode, errors.decode()


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["detect", "--help"]])
def test_help_on_a_full_disk(start: Start, arguments: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        code, errors = finish(start(*arguments, stdout=full))
    assert (code, errors) == (1, "lensbox_runner: cannot write to stdout: No space left on device\n")


def test_a_document_on_a_full_disk(start: Start, artifact: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        code, errors = finish(start("selftest", "--artifact", artifact, stdout=full))
    assert (code, errors) == (1, "lensbox_runner: cannot write to stdout: No space left on device\n")


def test_a_document_that_nobody_reads_is_no_success(start: Start, artifact: Path) -> None:
    """Run with SIGPIPE ignored, as in systemd's services; otherwise that signal ends the program."""
    reader, writer = os.pipe()
    os.close(reader)
    ignoring = signal.getsignal(signal.SIGPIPE)
    assert ignoring == signal.SIG_IGN  # of Python itself, which the program inherits
    process = start("selftest", "--artifact", artifact, stdout=writer, restore_signals=False)
    os.close(writer)
    code, errors = finish(process)
    assert (code, errors) == (1, "lensbox_runner: cannot write to stdout: Broken pipe\n")


def test_a_slow_reader_of_a_stdout_that_does_not_block(start: Start, artifact: Path, tmp_path: Path) -> None:
    """Run with a non-blocking pipe, shared with a program that made it so."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    frames = tmp_path / "frames.gray"
    frames.write_bytes(np.random.default_rng(0).integers(0, 256, 30 * 90 * 70, dtype=np.uint8).tobytes())
    with frames.open("rb") as stdin:
        process = start(
            "detect", "--artifact", artifact, "--raw", "90x70", "gray8", stdin=stdin, stdout=writer
        )
    os.close(writer)
    # Not read before it is full, or the program has given up.
    poller = select.poll()
    poller.register(reader, 0)
    poller.poll(3000)
    with os.fdopen(reader, "rb") as output:
        lines = output.read().splitlines()
    assert finish(process) == (0, "")
    assert len(lines) == 30


def test_a_socket_for_stdout_that_is_closed(start: Start, artifact: Path) -> None:
    ours, theirs = socket.socketpair()
    process = start("detect", "--artifact", artifact, "--raw", "90x70", "gray8", stdout=theirs)
    theirs.close()
    assert process.stdin is not None
    process.stdin.write(bytes(90 * 70))
    process.stdin.flush()
    with ours.makefile("rb") as lines:
        assert lines.readline()
    ours.close()
    # stdin stays open, and silent.
    try:
        assert process.wait(timeout=20) == 0
    finally:
        process.kill()
        finish(process)


def closed(descriptor: int) -> Callable[[], None]:
    return lambda: os.close(descriptor)


def test_no_stdin(start: Start, artifact: Path) -> None:
    frames = start("detect", "--artifact", artifact, "--raw", "4x4", "gray8", preexec_fn=closed(0))
    assert finish(frames) == (1, "lensbox_runner: cannot read frames: Bad file descriptor\n")


@pytest.mark.parametrize("arguments", [["selftest"], ["detect", "--raw", "4x4", "gray8"]])
def test_no_stdout(start: Start, artifact: Path, arguments: list[str]) -> None:
    process = start(*arguments, "--artifact", artifact, preexec_fn=closed(1))
    assert process.stdin is not None
    process.stdin.write(bytes(16))
    process.stdin.flush()  # and stays open
    try:
        assert process.wait(timeout=20) == 1
        assert process.stderr is not None
        assert process.stderr.read() == b"lensbox_runner: cannot write to stdout: Bad file descriptor\n"
    finally:
        process.kill()
        finish(process)
