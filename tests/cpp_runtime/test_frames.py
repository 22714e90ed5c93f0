"""detect of frames on stdin: one line for each frame, at once, and the ways in which a stream may end.

And unusual standard streams: a full disk, closed pipes, sockets, non-blocking pipes.

`frame_test.cpp` has the conversions of pixel formats.
"""

import fcntl
import json
import os
import select
import signal
import socket
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import PIL.Image
import pytest
from picture_files import noise
from runner_answers import Document, Process, answer, started
from waiting import PATIENCE

WIDTH, HEIGHT = 90, 70
FRAME = bytes(WIDTH * HEIGHT)
Frames = npt.NDArray[np.uint8]


def frames_program(random_path: Path, *options: str, pixels: str = "gray8", **streams: Any) -> Any:
    """Start the program for frames on stdin."""
    raw = ("--raw", f"{WIDTH}x{HEIGHT}", pixels)
    return started("detect", "--artifact", random_path, *raw, *options, **streams)


def pictures(mode: str = "L") -> Frames:
    """Three different frames, [3, height, width] or [3, height, width, 3]."""
    return np.stack([np.asarray(noise(mode, WIDTH, HEIGHT).rotate(120 * turn)) for turn in range(3)])


def finish(process: Process) -> tuple[int, list[Any], str]:
    """Return the exit code, the lines that are left if stdout is a pipe, and stderr."""
    out, errors = process.communicate(timeout=PATIENCE)
    return process.returncode, [json.loads(line) for line in (out or b"").splitlines()], errors.decode()


def found_in_files(frames: Frames, random_path: Path, folder: Path, *options: object) -> list[Document]:
    """Return the lines that say what the program finds in files of the frames."""
    files = [folder / f"{number}.png" for number in range(len(frames))]
    for file, frame in zip(files, frames, strict=True):
        PIL.Image.fromarray(frame).save(file)
    images: list[Document] = answer("detect", "--artifact", random_path, *options, "--image", *files)[
        "images"
    ]
    for number, (image, file) in enumerate(zip(images, files, strict=True)):
        assert image["detections"]
        assert image.pop("file") == str(file)
        image["frame"] = number
    return images


@pytest.mark.parametrize("pixels", ["gray8", "rgb8", "bgr8", "nv12"])
def test_every_frame_is_answered_before_the_next(random_path: Path, pixels: str, tmp_path: Path) -> None:
    frames = pictures("RGB" if pixels in ("rgb8", "bgr8") else "L")
    sent = frames[..., ::-1] if pixels == "bgr8" else frames
    if pixels == "nv12":
        # Without color, limited range: 16 is black, 235 is white.
        sent = np.concatenate([sent, np.full((3, HEIGHT // 2, WIDTH), 128, np.uint8)], axis=1)
        frames = np.clip(np.round((frames - 16.0) * 255 / 219), 0, 255).astype(np.uint8)
    with frames_program(random_path, pixels=pixels) as process:
        for frame, line in zip(sent, found_in_files(frames, random_path, tmp_path), strict=True):
            for part in np.array_split(frame, 7):
                process.stdin.write(part.tobytes())
                process.stdin.flush()
            assert json.loads(process.stdout.readline()) == line
        assert finish(process) == (0, [], "")


def test_a_truncated_last_frame_ends_a_batch(random_path: Path, tmp_path: Path) -> None:
    frames, size = pictures(), WIDTH * HEIGHT
    with frames_program(random_path, "--batch", "2") as process:
        process.stdin.write(frames.tobytes()[:-1])
        code, lines, errors = finish(process)
    assert code == 4
    assert f"the last frame is truncated: got {size - 1} bytes, a frame of 90x70 gray8 has {size}" in errors
    assert lines == found_in_files(frames[:2], random_path, tmp_path, "--batch", "2")


@pytest.mark.parametrize(("number", "part"), [(signal.SIGTERM, 0), (signal.SIGINT, 100)])
def test_a_signal_ends_the_program_between_frames(
    random_path: Path, number: signal.Signals, part: int
) -> None:
    frame = pictures()[0]
    with frames_program(random_path) as process:
        process.stdin.write(frame.tobytes())
        process.stdin.flush()
        process.stdout.readline()
        process.stdin.write(frame.tobytes()[:part])  # stdin stays open
        process.stdin.flush()
        process.send_signal(number)
        assert process.wait(PATIENCE) == 0
        assert (process.stdout.read(), process.stderr.read()) == (b"", b"")


@pytest.mark.parametrize("command", ["--help", "selftest"])
def test_a_full_disk(random_path: Path, command: str) -> None:
    arguments = [command] if command == "--help" else [command, "--artifact", random_path]
    with Path("/dev/full").open("wb") as full, started(*arguments, stdout=full) as process:
        assert finish(process) == (1, [], "lensbox_runner: cannot write to stdout: No space left on device\n")


def test_waits_for_the_reader_of_a_non_blocking_stdout(random_path: Path, tmp_path: Path) -> None:
    """Run with a non-blocking pipe, shared with a program that made it so."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    frames = tmp_path / "frames.gray"
    frames.write_bytes(os.urandom(30 * len(FRAME)))
    with (
        frames.open("rb") as stdin,
        frames_program(random_path, stdin=stdin, stdout=writer) as process,
    ):
        os.close(writer)
        # Read once the pipe is full or the program has ended.
        poller = select.poll()
        poller.register(reader, 0)
        poller.poll(3000)
        with os.fdopen(reader, "rb") as output:
            lines = output.read().splitlines()
        assert finish(process) == (0, [], "")
    assert len(lines) == 30


def test_a_closed_socket_for_stdout_ends_the_program(random_path: Path) -> None:
    ours, theirs = socket.socketpair()
    with frames_program(random_path, stdout=theirs) as process:
        theirs.close()
        process.stdin.write(FRAME)
        process.stdin.flush()
        with ours.makefile("rb") as lines:
            assert lines.readline()
        ours.close()
        # stdin stays open, and silent.
        assert process.wait(PATIENCE) == 0


def test_closed_descriptors(random_path: Path) -> None:
    with frames_program(random_path, preexec_fn=lambda: os.close(0)) as process:
        assert finish(process) == (1, [], "lensbox_runner: cannot read frames: Bad file descriptor\n")
    with frames_program(random_path, preexec_fn=lambda: os.close(1)) as process:
        process.stdin.write(FRAME)
        process.stdin.flush()  # and stays open
        assert process.wait(PATIENCE) == 1
        assert process.stderr.read() == b"lensbox_runner: cannot write to stdout: Bad file descriptor\n"
