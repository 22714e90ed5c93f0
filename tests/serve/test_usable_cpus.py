"""CPUs of a process, also in a container."""

import os
from pathlib import Path

import pytest

from lensbox.serve.engine.usable_cpus import usable_cpus


@pytest.fixture(autouse=True)
def _sixteen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)), raising=False)


def _usable(folder: Path, own: str, **limits: str) -> int:
    """limits: what `cpu.max` says, by the name of its group; __ stands for a group in a group, "" for all."""
    groups = folder / "groups"
    for name, text in {"root": "", **limits}.items():
        group = groups.joinpath(*name.split("__")[1:])
        group.mkdir(parents=True, exist_ok=True)
        if text:
            (group / "cpu.max").write_text(text + "\n")
    (folder / "own").write_text(own)
    return usable_cpus(groups, folder / "own")


def test_all_that_it_may_run_on(tmp_path: Path) -> None:
    assert _usable(tmp_path, "0::/\n") == 16
    assert usable_cpus(tmp_path / "nowhere", tmp_path / "nothing") == 16
    assert _usable(tmp_path, "4:cpu:/old\n") == 16  # version 1


@pytest.mark.parametrize(
    ("limit", "cpus"),
    [
        ("max 100000", 16),
        ("200000 100000", 2),
        ("250000 100000", 3),
        ("50000 100000", 1),
        ("9900000 100000", 16),
        ("what is this", 16),
        ("100000 0", 16),
    ],
)
def test_a_container_is_limited(tmp_path: Path, limit: str, cpus: int) -> None:
    assert _usable(tmp_path, "0::/\n", root=limit) == cpus


def test_the_tightest_limit_around_it_counts(tmp_path: Path) -> None:
    limits = {
        "root__pods": "400000 100000",
        "root__pods__mine": "max 100000",
        "root__others": "100000 100000",
    }
    assert _usable(tmp_path, "1:name=x:/\n0::/pods/mine\n", **limits) == 4
