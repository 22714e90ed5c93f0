"""Defaults that depend on the machine."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from lensbox.common.errors import DeviceError
from lensbox.serve.engine.devices import batch_sizes, for_this_machine, usable_cpus
from lensbox.serve.errors import StartupError
from lensbox.serve.settings import Settings

_NESTED = {"pods": "400000 100000", "pods/mine": "max 100000", "others": "100000 100000"}


@pytest.mark.parametrize(
    ("own", "limits", "cpus"),
    [
        ("0::/", {}, 16),
        ("4:cpu:/old", {"": "200000 100000"}, 16),  # version 1
        ("0::/", {"": "max 100000"}, 16),
        ("0::/", {"": "250000 100000"}, 3),
        ("0::/", {"": "50000 100000"}, 1),
        ("0::/", {"": "100000 0"}, 16),
        ("1:name=x:/\n0::/pods/mine", _NESTED, 4),
    ],
)
def test_respects_the_tightest_limit_of_a_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str, limits: dict[str, str], cpus: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)), raising=False)
    groups = tmp_path / "groups"
    for name, limit in limits.items():
        (groups / name).mkdir(parents=True, exist_ok=True)
        (groups / name / "cpu.max").write_text(limit + "\n")
    (tmp_path / "own").write_text(own + "\n")
    assert usable_cpus(groups, tmp_path / "own") == cpus
    assert usable_cpus(groups, tmp_path / "nothing") == 16


def test_batch_sizes_to_capture() -> None:
    assert [batch_sizes(largest) for largest in (1, 6, 20)] == [[1], [1, 2, 4, 6], [1, 2, 4, 8, 16, 20]]
    assert batch_sizes(64) == [1, 2, 4, 8, 16, 24, 32, 48, 64]


@pytest.mark.parametrize(
    ("asked", "devices", "frontends"),
    [
        ({"device": "cpu,cpu"}, ["cpu", "cpu"], 1),
        ({"device": "cpu", "frontends": 3}, ["cpu"], 3),
        ({"device": "cuda:1"}, ["cuda:1"], 4),
        ({"device": "cuda:1,cuda:0", "frontends": 6}, ["cuda:1", "cuda:0"], 6),
        ({"device": "cuda:0,cpu", "frontends": 1}, ["cuda:0", "cpu"], 1),
    ],
)
def test_fits_the_service_to_the_machine(
    monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any], devices: list[str], frontends: int
) -> None:
    monkeypatch.setattr("lensbox.serve.engine.devices.usable_cpus", lambda: 8)
    settings = Settings(Path("unused"), **asked)
    assert for_this_machine(settings) == (replace(settings, frontends=frontends), devices)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_another_process_looks_for_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking for them begins to use CUDA, and then this process could not fork engines."""
    is_available = Mock(return_value=True)
    monkeypatch.setattr(torch.cuda, "is_available", is_available)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    settings = Settings(Path("unused"), device="all", frontends=1)
    assert for_this_machine(settings) == (settings, ["cuda:0", "cuda:1"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: os._exit(9))
    with pytest.raises(StartupError, match="ended with 9; --device cpu"):
        for_this_machine(settings)
    is_available.assert_not_called()


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_rejects_all_gpus_without_a_gpu() -> None:
    with pytest.raises(DeviceError, match="got 'all', but torch finds no GPU"):
        for_this_machine(Settings(Path("unused"), device="all"))
