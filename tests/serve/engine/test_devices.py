"""Defaults that depend on the machine."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from lensbox.common.errors import DeviceError
from lensbox.serve.engine import devices
from lensbox.serve.engine.devices import busy_poll, device_names, frontend_count, usable_cpus
from lensbox.serve.settings import Settings


@pytest.fixture
def _sixteen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)), raising=False)


@pytest.mark.usefixtures("_sixteen")
def test_counts_the_cpus_of_the_affinity_mask(tmp_path: Path) -> None:
    assert _usable(tmp_path, "0::/\n") == 16
    assert usable_cpus(tmp_path / "nowhere", tmp_path / "nothing") == 16
    assert _usable(tmp_path, "4:cpu:/old\n") == 16  # version 1


def _usable(folder: Path, own: str, **limits: str) -> int:
    """limits: the content of `cpu.max` by cgroup, where __ separates nested names."""
    groups = folder / "groups"
    for name, text in {"root": "", **limits}.items():
        group = groups.joinpath(*name.split("__")[1:])
        group.mkdir(parents=True, exist_ok=True)
        if text:
            (group / "cpu.max").write_text(text + "\n")
    (folder / "own").write_text(own)
    return usable_cpus(groups, folder / "own")


@pytest.mark.usefixtures("_sixteen")
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
def test_respects_the_limit_of_a_container(tmp_path: Path, limit: str, cpus: int) -> None:
    assert _usable(tmp_path, "0::/\n", root=limit) == cpus


@pytest.mark.usefixtures("_sixteen")
def test_respects_the_tightest_limit(tmp_path: Path) -> None:
    limits = {
        "root__pods": "400000 100000",
        "root__pods__mine": "max 100000",
        "root__others": "100000 100000",
    }
    assert _usable(tmp_path, "1:name=x:/\n0::/pods/mine\n", **limits) == 4


def _settings(**values: Any) -> Settings:
    return Settings(Path("unused"), **values)


def test_names_devices() -> None:
    assert device_names(_settings(device="cpu")) == ["cpu"]
    assert device_names(_settings(devices="cuda:1,cuda:0")) == ["cuda:1", "cuda:0"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_rejects_all_gpus_without_a_gpu() -> None:
    with pytest.raises(DeviceError, match="got 'all' where torch finds no GPU"):
        device_names(_settings(devices="all"))


def test_front_ends_default_to_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "usable_cpus", lambda: 8)
    monkeypatch.setattr("sys.platform", "linux")
    assert frontend_count(_settings(), ["cpu"]) == 0
    assert frontend_count(_settings(), ["cuda:1"]) == 6
    assert frontend_count(_settings(frontends=3), ["cpu"]) == 3
    monkeypatch.setattr("sys.platform", "darwin")
    assert frontend_count(_settings(), ["cuda"]) == 0


def test_busy_polls_with_gpus_and_spare_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "usable_cpus", lambda: 8)
    assert busy_poll(_settings(frontends=6), ["cuda"]) == 4
    assert busy_poll(_settings(frontends=5), ["cuda:0", "cuda:1"]) == 4
    assert busy_poll(_settings(frontends=6), ["cuda:0", "cuda:1"]) == 0
    assert busy_poll(_settings(frontends=1), ["cpu"]) == 0
    assert busy_poll(_settings(frontends=1), ["cuda:0", "cpu"]) == 0
    assert busy_poll(_settings(frontends=1, busy_poll=9), ["cpu"]) == 9
    assert busy_poll(_settings(frontends=1, busy_poll=0), ["cuda"]) == 0
