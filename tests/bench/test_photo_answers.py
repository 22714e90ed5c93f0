"""How answers move, and how they compare with those of the C++ runner."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from photo_fixtures import SMALL, fake_runner, found
from torch import Tensor

from lensbox.bench.peers.peer import UnavailableError
from lensbox.bench.photo import benchmark, photo_report
from lensbox.bench.photo.answers import Movement, movements
from lensbox.bench.photo.photographs import jpeg_photograph
from lensbox.bench.photo.results import PhotoReport
from lensbox.bench.photo.runner import RunnerDifference, runner_differences
from lensbox.bench.photo.subject import Subject
from lensbox.runtime.detection import Detections


def test_reduced_decoding_hardly_moves_an_answer(subject: Subject) -> None:
    large, small = movements(subject, [jpeg_photograph(*SMALL), jpeg_photograph(496, 400)])
    assert (large.reduction, small.reduction) == (2, 1)
    assert large.found == large.matched >= 3
    assert 0 < large.box < 8
    assert large.canvas_box == pytest.approx(large.box * 256 / 1040)
    assert small.score < 0.05


class _FakeArtifact:
    """Finds one thing in a reduced photograph and another in a full one."""

    def __init__(self, reduced: Detections, full: Detections, device: torch.device) -> None:
        self._found = {True: reduced, False: full}
        self.device = device

    def read_photo(self, file: bytes) -> Any:
        from lensbox.runtime.photo import Photo

        return Photo(torch.zeros(1, 48, 64, dtype=torch.uint8), 256, 192, (0, 0, 256, 192))

    def detect_image(self, image: Any) -> Detections:
        return self._found[not isinstance(image, Tensor)]


def test_movements_of_made_up_faces(subject: Subject) -> None:
    full = found((10, 10, 50, 60, 0.9), (100, 100, 140, 140, 0.8), (0, 100, 30, 130, 0.55))
    reduced = found((101, 102, 141, 139, 0.75), (10, 13, 50, 60, 0.7), (200, 10, 220, 30, 0.6))
    fake: Any = _FakeArtifact(reduced, full, torch.device("cpu"))
    photograph = jpeg_photograph(256, 192)
    (movement,) = movements(replace(subject, artifact=fake), [photograph])
    assert (movement.score, movement.unmatched_score) == pytest.approx((0.2, 0.6))
    whole = replace(movement, score=0.0, unmatched_score=0.0)
    assert whole == Movement(photograph.name, 4, 3, 2, 1, 3.0, 3.0, 0.0, 0.0)
    _, lines = photo_report.answers_table([movement])
    assert lines == [["JPEG 256 x 192", "1/4", "3", "2", "1", "3.00", "3.00", "0.200", "0.60"]]


def test_differences_to_the_runner_are_measured(subject: Subject, tmp_path: Path) -> None:
    photograph = jpeg_photograph(*SMALL)
    right = subject.artifact.detect_image(subject.artifact.read_photo(photograph.file))
    answers = [
        {"box": box, "score": score}
        for box, score in zip(right.boxes.tolist(), right.scores.tolist(), strict=True)
    ]
    moved = [{**answers[0], "box": [value + 0.5 for value in answers[0]["box"]]}, *answers[1:]]
    (tmp_path / "answers.json").write_text(
        json.dumps({"images": [{"detections": one} for one in (answers, moved, answers[1:])]})
    )
    runner = fake_runner(tmp_path, f"print(open({str(tmp_path / 'answers.json')!r}).read())")
    same, off, fewer = runner_differences(runner, subject.artifact_file, [photograph] * 3)
    assert same == RunnerDifference(photograph.name, len(answers), len(answers), 0, 0)
    assert off.boxes == pytest.approx(0.5)
    assert fewer == RunnerDifference(photograph.name, len(answers), len(answers) - 1, None, None)
    for difference, wrong in ((same, False), (off, True), (fewer, True)):
        report = PhotoReport([], "cpu", 1, runner_differences=[difference])
        assert benchmark.own_defects(report) == wrong


def test_a_runner_that_fails_is_no_measurement(subject: Subject, tmp_path: Path) -> None:
    photographs = [jpeg_photograph(64, 48)]
    failing = fake_runner(tmp_path, "sys.exit('no such artifact')")
    with pytest.raises(UnavailableError, match="lensbox_runner fails: no such artifact"):
        runner_differences(failing, subject.artifact_file, photographs)
    with pytest.raises(UnavailableError, match="cannot be run"):
        runner_differences(tmp_path / "none", subject.artifact_file, photographs)
