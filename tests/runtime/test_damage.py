"""Damaged files are refused in order or as good as before; no crash, no hang, no other answer."""

import zipfile
from pathlib import Path

import pytest
import torch
from damaged_files import DAMAGES, EDITS, damaged, with_bit_flipped
from loading_in_children import outcome_of

import lensbox.ops
from lensbox.common.errors import ArtifactError
from lensbox.runtime.artifact_loading import load_artifact, load_artifact_bytes


@pytest.fixture(scope="module")
def data(artifact_path: Path) -> bytes:
    lensbox.ops.library_path()  # loaded once, not in every child
    return artifact_path.read_bytes()


@pytest.fixture(scope="module")
def answers(data: bytes) -> str:
    outcome = outcome_of(data)
    assert outcome.startswith("answers: ")
    return outcome


@pytest.mark.parametrize("kind", DAMAGES)
def test_damage_is_refused_or_changes_nothing(kind: str, data: bytes, answers: str) -> None:
    outcomes = [outcome_of(damaged(data, kind, seed)) for seed in range(25)]
    assert sum(outcome.startswith("refused: ") for outcome in outcomes) > 12
    for seed, outcome in enumerate(outcomes):
        assert outcome == answers or outcome.startswith("refused: damaged.pt "), (seed, outcome)


def test_no_bit_of_a_directory_line_changes_an_answer(artifact_path: Path) -> None:
    data = artifact_path.read_bytes()
    with zipfile.ZipFile(artifact_path) as archive:
        name = max((name for name in archive.namelist() if "/constants/" in name), key=len).encode()
    line = data.index(b"PK\1\2", data.rindex(name) - 46)
    image = torch.randint(0, 256, (3, 60, 80), dtype=torch.uint8)
    expected = load_artifact(artifact_path).detect_image(image, 0.001)
    accepted = 0
    for bit in range(46 * 8):
        changed = with_bit_flipped(data, line + bit // 8, bit % 8)
        try:
            artifact = load_artifact_bytes(changed, "flipped.pt")
        except ArtifactError:
            continue
        accepted += 1
        found = artifact.detect_image(image, 0.001)
        assert torch.equal(found.boxes, expected.boxes), bit
        assert torch.equal(found.scores, expected.scores), bit
    assert 0 < accepted <= 112  # versions, time, and the attributes of two systems


@pytest.mark.parametrize("kind", EDITS)
def test_edits_are_refused_in_order_or_load(kind: str, data: bytes) -> None:
    outcomes = [outcome_of(damaged(data, kind, seed)) for seed in range(15)]
    assert sum(outcome.startswith("refused: ") for outcome in outcomes) > 5
    for seed, outcome in enumerate(outcomes):
        assert outcome.startswith(("refused: damaged.pt ", "answers: ")), (seed, outcome)
