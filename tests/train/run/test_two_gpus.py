"""`lensbox train` on two GPUs, through NCCL, against one GPU with as many views a step."""

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
import torch

from lensbox.model import load_detector
from lensbox.train.run.checkpoint import load_checkpoint

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
]

STEPS = 80
SETTINGS = [
    "model=small",
    f"steps={STEPS}",
    "compile=false",
    "bf16=false",
    "max_targets=8",
    "max_ignored=8",
    "workers=2",
    "recalibration_views=64",
    "log_seconds=1e-9",
]


def run(data: Path, output: Path, processes: int, batch_size: int) -> tuple[str, list[dict[str, Any]]]:
    """Trains on so many GPUs. Returns what was said, and the reports of the steps."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command += ["-m", "lensbox.train", "--data", str(data), "--val", str(data), "--output", str(output)]
    command += ["--device", "cuda", "--set", *SETTINGS, f"batch_size={batch_size}"]
    # NVLink multicast is not to be had in every container.
    environment = {**os.environ, "NCCL_NVLS_ENABLE": "0", "OMP_NUM_THREADS": "2"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    reports = [json.loads(line) for line in (output / "log.jsonl").read_text().splitlines()]
    return done.stderr, [report for report in reports if "loss" in report]


def loss(reports: list[dict[str, Any]]) -> float:
    return mean(float(report["loss"]) for report in reports)


def test_two_gpus_train_as_one_with_as_many_views(faces_folder: Path, tmp_path: Path) -> None:
    two_said, two = run(faces_folder, tmp_path / "two", processes=2, batch_size=8)
    _, one = run(faces_folder, tmp_path / "one", processes=1, batch_size=16)
    assert "CUDA graph: captured" in two_said  # with NCCL's all-reduce in it
    assert two[-1]["step"] == one[-1]["step"] == STEPS
    # The same views are not drawn, and batch norm sees half as many, so the curves agree about.
    for part in (slice(0, STEPS // 4), slice(-STEPS // 4, None)):
        assert loss(two[part]) == pytest.approx(loss(one[part]), rel=0.15)
    assert loss(two[-10:]) < 0.9 * loss(two[:10])
    views = [json.loads((tmp_path / name / "figures.json").read_text())["views"] for name in ("one", "two")]
    assert views == [16 * STEPS] * 2
    checkpoint = load_checkpoint(tmp_path / "two" / "checkpoint.pt")
    assert len(checkpoint["step"]["generators"]) == 2
    state = load_detector(tmp_path / "two" / "weights.safetensors").state_dict()
    assert all(bool(value.isfinite().all()) for value in state.values())
