"""The program with unusual standard streams: a full disk, closed pipes, sockets, non-blocking pipes."""

import fcntl
import os
import select
import signal
import socket
from pathlib import Path

import pytest
from runner_answers import Process, started

FRAMES = ["--raw", "90x70", "gray8"]
FRAME = bytes(90 * 70)


def finish(process: Process) -> tuple[int, str]:
    """Return the exit code and stderr."""
    _, errors = process.communicate(timeout=60)
    return process.returncode, errors.decode()


@pytest.mark.parametrize("command", ["--help", "selftest"])
def test_a_full_disk(artifact: Path, command: str) -> None:
    arguments = [command] if command == "--help" else [command, "--artifact", artifact]
    with Path("/dev/full").open("wb") as full, started(*arguments, stdout=full) as process:
        assert finish(process) == (1, "lensbox_runner: cannot write to stdout: No space left on device\n")


def test_fails_if_stdout_is_closed(artifact: Path) -> None:
    """Run with SIGPIPE ignored, as in systemd's services; otherwise that signal ends the program."""
    reader, writer = os.pipe()
    os.close(reader)
    assert signal.getsignal(signal.SIGPIPE) == signal.SIG_IGN  # Python's own, which the program inherits
    with started("selftest", "--artifact", artifact, stdout=writer, restore_signals=False) as process:
        os.close(writer)
        assert finish(process) == (1, "lensbox_runner: cannot write to stdout: Broken pipe\n")


def test_waits_for_the_reader_of_a_non_blocking_stdout(artifact: Path, tmp_path: Path) -> None:
    """Run with a non-blocking pipe, shared with a program that made it so."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    frames = tmp_path / "frames.gray"
    frames.write_bytes(os.urandom(30 * len(FRAME)))
    with (
        frames.open("rb") as stdin,
        started("detect", "--artifact", artifact, *FRAMES, stdin=stdin, stdout=writer) as process,
    ):
        os.close(writer)
        # Read once the pipe is full or the program has ended.
        poller = select.poll()
        poller.register(reader, 0)
        poller.poll(3000)
        with os.fdopen(reader, "rb") as output:
            lines = output.read().splitlines()
        assert finish(process) == (0, "")
    assert len(lines) == 30


def test_a_closed_socket_for_stdout_ends_the_program(artifact: Path) -> None:
    ours, theirs = socket.socketpair()
    with started("detect", "--artifact", artifact, *FRAMES, stdout=theirs) as process:
        theirs.close()
        assert process.stdin is not None
        process.stdin.write(FRAME)
        process.stdin.flush()
        with ours.makefile("rb") as lines:
            assert lines.readline()
        ours.close()
        # stdin stays open, and silent.
        assert process.wait(timeout=60) == 0


def test_closed_descriptors(artifact: Path) -> None:
    arguments = ("detect", "--artifact", artifact, *FRAMES)
    with started(*arguments, preexec_fn=lambda: os.close(0)) as process:
        assert finish(process) == (1, "lensbox_runner: cannot read frames: Bad file descriptor\n")
    with started(*arguments, preexec_fn=lambda: os.close(1)) as process:
        assert process.stdin is not None
        process.stdin.write(FRAME)
        process.stdin.flush()  # and stays open
        assert process.wait(timeout=60) == 1
        assert process.stderr is not None
        assert process.stderr.read() == b"lensbox_runner: cannot write to stdout: Bad file descriptor\n"
