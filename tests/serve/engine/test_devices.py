"""Defaults that depend on the machine."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from lensbox.common.errors import DeviceError
from lensbox.serve.engine import devices
from lensbox.serve.engine.devices import (
    batch_sizes,
    busy_poll,
    device_names,
    frontend_count,
    places,
    usable_cpus,
)
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


def _settings(**values: Any) -> Settings:
    return Settings(Path("unused"), **values)


def test_batch_sizes_to_capture() -> None:
    assert [batch_sizes(largest) for largest in (1, 6, 20)] == [[1], [1, 2, 4, 6], [1, 2, 4, 8, 16, 20]]
    assert batch_sizes(64) == [1, 2, 4, 8, 16, 24, 32, 48, 64]


def test_names_devices() -> None:
    assert device_names(_settings(device="cpu")) == ["cpu"]
    assert device_names(_settings(device="cuda:1,cuda:0")) == ["cuda:1", "cuda:0"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_rejects_all_gpus_without_a_gpu() -> None:
    with pytest.raises(DeviceError, match="got 'all', but torch finds no GPU"):
        device_names(_settings(device="all"))


def test_front_ends_default_to_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "usable_cpus", lambda: 8)
    assert frontend_count(_settings(), ["cpu", "cpu"]) == 1
    assert frontend_count(_settings(), ["cuda:1"]) == 4
    assert frontend_count(_settings(frontends=3), ["cpu"]) == 3


def test_more_jobs_may_wait_for_a_gpu() -> None:
    assert places(_settings(), ["cpu"]) == _settings().places == 128
    assert places(_settings(), ["cuda:1"]) == 512
    assert places(_settings(queue_size=3), ["cuda:1"]) == _settings(queue_size=3).places == 3


def test_busy_polls_with_gpus_and_spare_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "usable_cpus", lambda: 8)
    assert busy_poll(6, ["cuda"]) == 0.004
    assert busy_poll(6, ["cuda:0", "cuda:1"]) == 0
    assert busy_poll(1, ["cuda:0", "cpu"]) == 0
