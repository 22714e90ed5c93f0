"""Damaged files are refused in order or as good as before; no crash, no hang, no other answer."""

from pathlib import Path

import pytest
from damaged_files import DAMAGES, EDITS, damaged
from loading_in_children import outcome_of

import lensbox.ops


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


@pytest.mark.parametrize("kind", EDITS)
def test_edits_are_refused_in_order_or_load(kind: str, data: bytes) -> None:
    outcomes = [outcome_of(damaged(data, kind, seed)) for seed in range(15)]
    assert sum(outcome.startswith("refused: ") for outcome in outcomes) > 5
    for seed, outcome in enumerate(outcomes):
        assert outcome.startswith(("refused: damaged.pt ", "answers: ")), (seed, outcome)
