"""The cases of `lensbox bench photo`: every way is checked, and all that are right are timed."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from photo_fixtures import EFFORT, SMALL, spoiled
from torch import Tensor

from lensbox.bench.peers.peer import UnavailableError
from lensbox.bench.photo import benchmark, chains, check, frame_cases, opencv, photo_report
from lensbox.bench.photo.case import run_case
from lensbox.bench.photo.chains import CHAINS, LENSBOX, OPENCV, PILLOW, PREVIOUS, Chain
from lensbox.bench.photo.file_cases import file_case
from lensbox.bench.photo.frame_cases import DEVICE_TIME, batch_case, frame_case
from lensbox.bench.photo.graph_case import graph_case
from lensbox.bench.photo.photographs import jpeg_photograph, jpeg_variants
from lensbox.bench.photo.results import PhotoReport
from lensbox.bench.photo.stream_case import stream_case
from lensbox.bench.photo.subject import Subject, make_subject
from lensbox.bench.photo.timings import Timing
from lensbox.model import load_detector


def notes(timings: list[Timing]) -> dict[str, str]:
    return {timing.way: timing.note for timing in timings if timing.note}


def without_opencv(notes: dict[str, str]) -> dict[str, str]:
    """OpenCV may be missing."""
    return {
        way: note for way, note in notes.items() if not note.startswith("not available: the Python package")
    }


@pytest.mark.parametrize("index", range(5))
def test_every_chain_finds_the_faces_of_every_kind_of_jpeg(subject: Subject, index: int) -> None:
    variant = jpeg_variants(*SMALL)[index]
    timings = run_case(file_case(subject, variant, by_steps=False), EFFORT, 1e10)
    wrong = without_opencv(notes(timings))
    # It did not turn photographs upright, which is what the peer shows.
    assert set(wrong) == ({PREVIOUS} if "side" in variant.name else set())
    assert all(note.startswith("WRONG: a face at") for note in wrong.values())
    assert len(check.expected_detections(variant.file, subject).boxes) >= 3


def test_steps_and_whole_are_timed(subject: Subject) -> None:
    timings = run_case(file_case(subject, jpeg_photograph(*SMALL), by_steps=True), EFFORT, 1e10)
    steps = {way: [timing.step for timing in timings if timing.way == way] for way in CHAINS}
    assert steps[LENSBOX] == steps[PREVIOUS] == ["decode", "letterbox", "detect", "restore", "to boxes"]
    assert steps[PILLOW] == ["to boxes"]
    assert all(timing.summary is not None for timing in timings if timing.way in (LENSBOX, PREVIOUS, PILLOW))
    assert {timing.case for timing in timings} == {"JPEG 1040 x 784"}


def test_frames_are_letterboxed_by_all(subject: Subject) -> None:
    timings = run_case(frame_case(subject, 320, 180), EFFORT, 1e10)
    assert without_opencv(notes(timings)) == {}
    assert [timing.way for timing in timings][:3] == [LENSBOX, "lensbox, planes", PREVIOUS]


def test_a_stream_gives_photographs_a_second(subject: Subject) -> None:
    timings = run_case(stream_case(subject, 10), EFFORT, 1e10)
    assert [timing.way for timing in timings] == [
        "lensbox, batches of 32",
        "lensbox, batches of 128",
        PREVIOUS,
    ]
    assert notes(timings) == {}
    header, lines = photo_report.case_table(timings)
    assert header[-1] == "photographs/s"
    assert all(float(line[-1].replace(",", "")) > 0 for line in lines)


@pytest.mark.parametrize("name", [LENSBOX, PREVIOUS, PILLOW])
def test_a_wrong_chain_is_reported_and_not_timed(
    name: str, subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = CHAINS[name]
    monkeypatch.setitem(CHAINS, name, lambda subject: spoiled(right(subject)))
    timings = run_case(file_case(subject, jpeg_photograph(*SMALL), by_steps=False), EFFORT, 1e10)
    assert set(without_opencv(notes(timings))) == {name}
    assert notes(timings)[name].startswith("WRONG: ")
    assert next(timing for timing in timings if timing.way == name).summary is None
    report = PhotoReport([], "cpu", 1, timings)
    assert benchmark.own_defects(report) == (name == LENSBOX)


def test_a_canvas_that_is_off_by_one_is_a_defect_of_our_own(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = chains.lensbox_chain

    def off_by_one(subject: Subject) -> Chain:
        chain = right(subject)
        steps = chain.steps
        assert steps is not None

        def wrong(photo: Any) -> tuple[Tensor, Any]:
            canvases, geometry = steps.letterbox(photo)
            with torch.inference_mode():
                canvases[0, 0, 128, 128] += 1
            return canvases, geometry

        return replace(chain, steps=replace(steps, letterbox=wrong))

    monkeypatch.setitem(CHAINS, LENSBOX, off_by_one)
    timings = run_case(file_case(subject, jpeg_photograph(*SMALL), by_steps=False), EFFORT, 1e10)
    assert notes(timings)[LENSBOX] == "WRONG: the canvas differs from Pillow's in 1 of 65536 bytes"


def test_a_wrong_frame_is_reported(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    right = frame_cases._torch_float
    monkeypatch.setattr(frame_cases, "_torch_float", lambda *args: 255 - right(*args))
    timings = run_case(frame_case(subject, 320, 180), EFFORT, 1e10)
    assert set(without_opencv(notes(timings))) == {frame_cases.TORCH_FLOAT}


def test_without_opencv_its_ways_say_so(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(UnavailableError, match=r"pip install 'lensbox\[bench\]' brings it"):
        opencv.load_opencv(1)
    timings = run_case(frame_case(subject, 320, 180), EFFORT, 1e10)
    assert notes(timings)[OPENCV].startswith("not available: the Python package 'opencv-python-headless'")


@pytest.mark.gpu
def test_cases_of_a_gpu(tmp_path: Path) -> None:
    with torch.inference_mode():
        subject = make_subject(load_detector(None), tmp_path, "cuda", threads=1)
        for case in (
            file_case(subject, jpeg_photograph(*SMALL), by_steps=True),
            batch_case(subject, 320, 180, 5),
            graph_case(subject, 1),
            graph_case(subject, 3),
            stream_case(subject, 10),
        ):
            timings = run_case(case, EFFORT, 1e12)
            assert without_opencv(notes(timings)) == {}
            for timing in timings:
                assert (timing.share is not None) == (timing.step == DEVICE_TIME)
