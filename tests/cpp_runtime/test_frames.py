"""detect of frames on stdin: one line for each frame, at once, and the ways in which the stream may end."""

import json
import signal
import socket
import struct
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from cpp_runtime.image_files import noise
from cpp_runtime.running import Start

from lensbox.runtime.loading import load_artifact

WIDTH, HEIGHT = 90, 70
Frames = npt.NDArray[np.uint8]


@pytest.fixture
def frames_program(start: Start, artifact: Path) -> Start:
    """Start the program for frames on stdin."""

    def start_for_frames(*options: str, pixels: str = "gray8", **streams: Any) -> Any:
        raw = ("--raw", f"{WIDTH}x{HEIGHT}", pixels)
        return start("detect", "--artifact", artifact, *raw, *options, **streams)

    return start_for_frames


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
def test_every_frame_is_answered_before_the_next(frames_program: Start, artifact: Path, pixels: str) -> None:
    frames = pictures("L" if pixels == "gray8" else "RGB")
    with frames_program(pixels=pixels) as process:
        for number, frame in enumerate(frames):
            for part in np.array_split(frame[..., ::-1] if pixels == "bgr8" else frame, 7):
                send(process.stdin, part)
            assert_found(receive(process), number, frame, artifact)
        assert finish(process) == (0, [], "")


def test_nv12(frames_program: Start, artifact: Path) -> None:
    luma = pictures("L")[0]
    chroma = np.full((HEIGHT // 2, WIDTH), 128, np.uint8)
    with frames_program(pixels="nv12") as process:
        send(process.stdin, np.concatenate([luma, chroma]))
        # Without color, limited range: 16 is black, 235 is white.
        gray = np.clip(np.round((luma.astype(np.float64) - 16) * 255 / 219), 0, 255).astype(np.uint8)
        line = receive(process)
        assert_found(line, 0, gray, artifact)
        assert finish(process) == (0, [], "")


@pytest.mark.parametrize("batch", ["2", "50"])
def test_batches(frames_program: Start, artifact: Path, batch: str) -> None:
    frames = pictures("L")
    with frames_program("--batch", batch) as process:
        send(process.stdin, frames)
        code, lines, errors = finish(process)
    assert (code, errors) == (0, "")
    for number, (line, frame) in enumerate(zip(lines, frames, strict=True)):
        assert_found(line, number, frame, artifact)


@pytest.mark.parametrize("batch", ["1", "4"])
def test_a_truncated_last_frame(frames_program: Start, batch: str) -> None:
    with frames_program("--batch", batch) as process:
        process.stdin.write(pictures("L").tobytes()[:-1])
        code, lines, errors = finish(process)
    assert (code, [line["frame"] for line in lines]) == (4, [0, 1])
    size = WIDTH * HEIGHT
    expected = f"the last frame is truncated: got {size - 1} bytes, a frame of 90x70 gray8 has {size}\n"
    assert errors == f"lensbox_runner: {expected}"


def test_answers_the_frames_before_a_connection_reset(frames_program: Start, artifact: Path) -> None:
    frames = pictures("L")[:2]
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    with theirs, frames_program("--batch", "3", stdin=theirs) as process:
        ours.sendall(frames.tobytes())
        # Closed in this way the connection is reset, and reading fails after what has come.
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        ours.close()
        code, lines, errors = finish(process)
    assert (code, errors) == (1, "lensbox_runner: cannot read frames: Connection reset by peer\n")
    assert len(lines) == 2
    for number, (line, frame) in enumerate(zip(lines, frames, strict=True)):
        assert_found(line, number, frame, artifact)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("part", [0, 100])
def test_a_signal_ends_the_program_between_frames(
    frames_program: Start, number: signal.Signals, part: int
) -> None:
    frame = pictures("L")[0]
    with frames_program() as process:
        send(process.stdin, frame)
        receive(process)
        send(process.stdin, frame.reshape(-1)[:part])  # stdin stays open
        process.send_signal(number)
        assert process.wait(timeout=60) == 0
        assert (process.stdout.read(), process.stderr.read()) == (b"", b"")
