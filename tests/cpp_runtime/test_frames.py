"""detect of frames on stdin: one line for each frame, at once, and the ways in which the stream may end.

`frame_test.cpp` has the conversions of pixel formats.
"""

import json
import signal
import socket
import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from picture_files import noise
from runner_answers import Process, started

from lensbox.runtime.loading import load_artifact

WIDTH, HEIGHT = 90, 70
Frames = npt.NDArray[np.uint8]


def frames_program(artifact: Path, *options: str, pixels: str = "gray8", **streams: Any) -> Any:
    """Start the program for frames on stdin."""
    raw = ("--raw", f"{WIDTH}x{HEIGHT}", pixels)
    return started("detect", "--artifact", artifact, *raw, *options, **streams)


def pictures(mode: str = "L") -> Frames:
    """Three different frames, [3, height, width] or [3, height, width, 3]."""
    return np.stack([np.asarray(noise(mode, WIDTH, HEIGHT).rotate(120 * turn)) for turn in range(3)])


def finish(process: Process) -> tuple[int, list[Any], str]:
    """Return the exit code, the lines that are left, and stderr."""
    out, errors = process.communicate(timeout=60)
    return process.returncode, [json.loads(line) for line in out.splitlines()], errors.decode()


def assert_found(line: Any, number: int, image: Frames, artifact: Path) -> None:
    """Assert that the line says what Python finds in the image, [h, w] or RGB [h, w, 3]."""
    assert (line["frame"], line["width"], line["height"]) == (number, WIDTH, HEIGHT)
    pixels = torch.from_numpy(image.reshape(HEIGHT, WIDTH, -1).copy()).permute(2, 0, 1)
    expected = load_artifact(artifact).detect_image(pixels)
    assert len(expected.scores) > 0
    boxes = torch.tensor([found["box"] for found in line["detections"]])
    scores = torch.tensor([found["score"] for found in line["detections"]])
    torch.testing.assert_close(boxes, expected.boxes, atol=0.01, rtol=0)
    torch.testing.assert_close(scores, expected.scores, atol=1e-5, rtol=0)


@pytest.mark.parametrize("pixels", ["gray8", "rgb8", "bgr8", "nv12"])
def test_every_frame_is_answered_before_the_next(artifact: Path, pixels: str) -> None:
    frames = pictures("RGB" if pixels in ("rgb8", "bgr8") else "L")
    with frames_program(artifact, pixels=pixels) as process:
        for number, frame in enumerate(frames):
            sent = frame[..., ::-1] if pixels == "bgr8" else frame
            if pixels == "nv12":
                # Without color, limited range: 16 is black, 235 is white.
                sent = np.concatenate([sent, np.full((HEIGHT // 2, WIDTH), 128, np.uint8)])
                frame = np.clip(np.round((frame.astype(np.float64) - 16) * 255 / 219), 0, 255)
            for part in np.array_split(sent, 7):
                process.stdin.write(part.tobytes())
                process.stdin.flush()
            assert_found(json.loads(process.stdout.readline()), number, frame.astype(np.uint8), artifact)
        assert finish(process) == (0, [], "")


def test_a_truncated_last_frame_ends_a_batch(artifact: Path) -> None:
    frames, size = pictures(), WIDTH * HEIGHT
    with frames_program(artifact, "--batch", "2") as process:
        process.stdin.write(frames.tobytes()[:-1])
        code, lines, errors = finish(process)
    assert code == 4
    assert f"the last frame is truncated: got {size - 1} bytes, a frame of 90x70 gray8 has {size}" in errors
    for number, (line, frame) in enumerate(zip(lines, frames[:2], strict=True)):
        assert_found(line, number, frame, artifact)


def test_answers_the_frames_before_a_connection_reset(artifact: Path) -> None:
    frames = pictures()[:2]
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    with theirs, frames_program(artifact, "--batch", "3", stdin=theirs) as process:
        ours.sendall(frames.tobytes())
        # Closed in this way the connection is reset, and reading fails after what has come.
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        ours.close()
        code, lines, errors = finish(process)
    assert (code, errors) == (1, "lensbox_runner: cannot read frames: Connection reset by peer\n")
    assert [line["frame"] for line in lines] == [0, 1]


@pytest.mark.parametrize(("number", "part"), [(signal.SIGTERM, 0), (signal.SIGINT, 100)])
def test_a_signal_ends_the_program_between_frames(artifact: Path, number: signal.Signals, part: int) -> None:
    frame = pictures()[0]
    with frames_program(artifact) as process:
        process.stdin.write(frame.tobytes())
        process.stdin.flush()
        process.stdout.readline()
        process.stdin.write(frame.tobytes()[:part])  # stdin stays open
        process.stdin.flush()
        process.send_signal(number)
        assert process.wait(timeout=60) == 0
        assert (process.stdout.read(), process.stderr.read()) == (b"", b"")
