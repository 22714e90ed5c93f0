"""detect of frames on stdin: one line out for each, at once, and every way in which the stream may end."""

import json
import os
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from cpp_runtime.image_files import noise

from lensbox.ops import library_path
from lensbox.runtime.loading import load_artifact

WIDTH, HEIGHT = 90, 70
Frames = npt.NDArray[np.uint8]
Start = Callable[..., Any]


@pytest.fixture(scope="module")
def start(runner: Path, artifact: Path) -> Start:
    """Starts the program for frames, with pipes."""

    @contextmanager
    def start_program(
        *options: str, size: str = f"{WIDTH}x{HEIGHT}", pixels: str = "gray8", stdin: Any = subprocess.PIPE
    ) -> Iterator[Any]:
        command: list[str | Path] = [
            runner,
            "detect",
            "--artifact",
            artifact,
            "--raw",
            size,
            pixels,
            *options,
        ]
        environment = {**os.environ, "LENSBOX_OPS_LIBRARY": str(library_path())}
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=stdin, stdout=pipe, stderr=pipe, env=environment) as process:
            try:
                yield process
            finally:
                process.kill()

    return start_program


def pictures(mode: str) -> Frames:
    """Three different frames, [3, height, width] or [3, height, width, 3]."""
    return np.stack([np.asarray(noise(mode, WIDTH, HEIGHT).rotate(120 * turn)) for turn in range(3)])


def send(stream: IO[bytes], frames: Frames) -> None:
    stream.write(frames.tobytes())
    stream.flush()


def receive(process: Any) -> Any:
    return json.loads(process.stdout.readline())


def finish(process: Any) -> tuple[int, list[Any], str]:
    """Exit code, the lines that are left, stderr."""
    out, errors = process.communicate(timeout=60)
    return process.returncode, [json.loads(line) for line in out.splitlines()], errors.decode()


def assert_found(line: Any, number: int, image: Frames, artifact: Path) -> None:
    """The line says what Python finds in the image, [h, w] or RGB [h, w, 3]."""
    assert (line["frame"], line["width"], line["height"]) == (number, WIDTH, HEIGHT)
    pixels = torch.from_numpy(image.copy())
    expected = load_artifact(artifact).detect_image(
        pixels[None] if image.ndim == 2 else pixels.permute(2, 0, 1)
    )
    assert len(expected.scores) > 0
    boxes = torch.tensor([found["box"] for found in line["detections"]])
    scores = torch.tensor([found["score"] for found in line["detections"]])
    torch.testing.assert_close(boxes, expected.boxes, atol=0.01, rtol=0)
    torch.testing.assert_close(scores, expected.scores, atol=1e-5, rtol=0)


@pytest.mark.parametrize("pixels", ["gray8", "rgb8", "bgr8"])
def test_every_frame_is_answered_before_the_next(start: Start, artifact: Path, pixels: str) -> None:
    frames = pictures("L" if pixels == "gray8" else "RGB")
    with start(pixels=pixels) as process:
        for number, frame in enumerate(frames):
            send(process.stdin, frame[..., ::-1] if pixels == "bgr8" else frame)
            assert_found(receive(process), number, frame, artifact)
        assert finish(process) == (0, [], "")


def test_nv12(start: Start, artifact: Path) -> None:
    luma = pictures("L")[0]
    chroma = np.full((HEIGHT // 2, WIDTH), 128, np.uint8)
    with start(pixels="nv12") as process:
        send(process.stdin, np.concatenate([luma, chroma]))
        # Without color, limited range: 16 is black, 235 is white.
        gray = np.clip(np.round((luma.astype(np.float64) - 16) * 255 / 219), 0, 255).astype(np.uint8)
        line = receive(process)
        assert_found(line, 0, gray, artifact)
        assert finish(process) == (0, [], "")


@pytest.mark.parametrize("batch", ["2", "3", "50"])
def test_batches(start: Start, artifact: Path, batch: str) -> None:
    frames = pictures("L")
    with start("--batch", batch) as process:
        send(process.stdin, frames)
        code, lines, errors = finish(process)
    assert (code, errors) == (0, "")
    for number, (line, frame) in enumerate(zip(lines, frames, strict=True)):
        assert_found(line, number, frame, artifact)


def test_no_frames(start: Start) -> None:
    with start() as process:
        assert finish(process) == (0, [], "")


@pytest.mark.parametrize("batch", ["1", "4"])
def test_a_truncated_last_frame(start: Start, batch: str) -> None:
    with start("--batch", batch) as process:
        process.stdin.write(pictures("L").tobytes()[:-1])
        code, lines, errors = finish(process)
    assert (code, [line["frame"] for line in lines]) == (4, [0, 1])
    size = WIDTH * HEIGHT
    expected = f"the last frame is truncated: got {size - 1} bytes, a frame of 90x70 gray8 has {size}\n"
    assert errors == f"lensbox_runner: {expected}"


def test_what_came_before_a_stream_broke_is_answered(start: Start, artifact: Path) -> None:
    frames = pictures("L")[:2]
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    with theirs, start("--batch", "3", stdin=theirs) as process:
        ours.sendall(frames.tobytes())
        # Closed in this way the connection is reset, and reading fails after what has come.
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        ours.close()
        code, lines, errors = finish(process)
    assert (code, errors) == (1, "lensbox_runner: cannot read frames: Connection reset by peer\n")
    assert len(lines) == 2
    for number, (line, frame) in enumerate(zip(lines, frames, strict=True)):
        assert_found(line, number, frame, artifact)


def test_a_frame_may_come_in_pieces(start: Start, artifact: Path) -> None:
    frame = pictures("L")[0]
    with start() as process:
        for part in np.array_split(frame.reshape(-1), 7):
            send(process.stdin, part)
            time.sleep(0.01)
        assert_found(receive(process), 0, frame, artifact)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("part", [0, 100])
def test_a_signal_ends_it_between_frames(start: Start, number: signal.Signals, part: int) -> None:
    frame = pictures("L")[0]
    with start() as process:
        send(process.stdin, frame)
        receive(process)
        send(process.stdin, frame.reshape(-1)[:part])  # stdin stays open
        process.send_signal(number)
        assert process.wait(timeout=60) == 0
        assert (process.stdout.read(), process.stderr.read()) == (b"", b"")


def test_a_closed_stdout_ends_it(start: Start) -> None:
    frame = pictures("L")[0]
    with start() as process:
        send(process.stdin, frame)
        receive(process)
        process.stdout.close()  # stdin stays open, and silent
        assert process.wait(timeout=60) == 0
        assert process.stderr.read() == b""


def test_a_stdout_that_closes_while_frames_come(start: Start) -> None:
    with start() as process:
        process.stdout.close()
        # More than a pipe holds: it is not all taken.
        code, errors = send_until_refused(process, np.concatenate([pictures("L")] * 100))
    assert (code, errors) == (0, b"")


def send_until_refused(process: Any, frames: Frames) -> tuple[int, bytes]:
    with pytest.raises(BrokenPipeError):
        send(process.stdin, frames)
    return process.wait(timeout=60), process.stderr.read()


@pytest.mark.parametrize(
    ("size", "pixels", "part"),
    [
        ("640", "gray8", "WIDTHxHEIGHT"),
        ("640x", "gray8", "got '640x'"),
        ("0x10", "gray8", "at least 1"),
        ("-1x10", "gray8", "at least 1"),
        ("8193x8192", "rgb8", "67108864 pixels"),
        ("99999999999x99999999999", "rgb8", "WIDTHxHEIGHT"),
        ("640x480", "yuyv", "must be gray8, rgb8, bgr8 or nv12, got 'yuyv'"),
    ],
)
def test_wrong_formats(start: Start, size: str, pixels: str, part: str) -> None:
    with start(size=size, pixels=pixels) as process:
        code, lines, errors = finish(process)
    assert (code, lines) == (2, [])
    assert "--raw" in errors
    assert part in errors
