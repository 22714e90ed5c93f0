"""What the tests of `lensbox bench photo` share."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lensbox.bench.measurement import Effort
from lensbox.bench.photo.chains import Chain
from lensbox.bench.photo.subject import Subject, make_subject
from lensbox.model import load_detector
from lensbox.runtime.detection import Detections

EFFORT = Effort(rounds=3, sample_seconds=1e-4, figure_seconds=0.01)
SMALL = (1040, 784)  # decoded at half of the sides


@pytest.fixture(scope="session")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    """The shipped detector on the CPU."""
    return make_subject(load_detector(None), tmp_path_factory.mktemp("bench"), "cpu", threads=1)


def found(*faces: tuple[float, float, float, float, float]) -> Detections:
    """Boxes and scores."""
    values = torch.tensor(faces).view(-1, 5)
    return Detections(values[:, :4], values[:, 4])


def spoiled(chain: Chain) -> Chain:
    """One whose boxes are elsewhere."""

    def to_boxes(file: bytes) -> Detections:
        right = chain.to_boxes(file)
        return Detections(right.boxes + 1000, right.scores)

    return replace(chain, to_boxes=to_boxes)


def fake_runner(folder: Path, program: str) -> Path:
    """An executable file with a program in Python."""
    path = folder / "lensbox_runner"
    path.write_text(f"#!{sys.executable}\nimport sys\n{program}\n")
    path.chmod(0o755)
    return path
