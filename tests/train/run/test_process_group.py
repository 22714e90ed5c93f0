"""Training of one detector in several processes, started as torchrun does."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
import torch
from programs import run_python
from short_runs import TINY

from lensbox.model import load_detector
from lensbox.train.run.checkpoint import load_checkpoint

# Runs that follow each other in one process, each with: port, folder, steps before an interruption, options
RANK = """
import json, os, sys, torch
from lensbox.cli.main import main
from lensbox.model import DetectorConfig
from lensbox.train.run.step import TrainStep

layout = DetectorConfig(stem_width=4, widths=(8, 8, 8, 8), depths=(0, 0, 0, 0), pyramid_width=8)
DetectorConfig.named = lambda name: layout

class Cut(Exception):
    pass

def draw_views(self):
    if len(views) == stop_after:
        torch.distributed.barrier()  # the checkpoint before this step is written
        raise Cut
    drawn = real(self)
    views.append(drawn.images)
    models.append(self.model)
    return drawn

real, TrainStep.draw_views = TrainStep.draw_views, draw_views
for port, output, stop_after, *options in json.loads(sys.argv[1]):
    views, models = [], []
    os.environ["MASTER_PORT"] = str(port)
    try:
        assert main(["train", "--output", output, *sys.argv[2:], *options]) == 0
    except Cut:
        torch.distributed.destroy_process_group()
    weights = [p.detach() for p in models[-1].parameters()]
    torch.save((views, weights), f"{output}/{os.environ['RANK']}.pt")
sys.stdout.flush()
# Not sys.exit: torch 2.13's gloo threads now and then abort the teardown, when all is done.
os._exit(0)
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_two_processes_train_one_model_and_resume_it(faces_folder: Path, tmp_path: Path) -> None:
    """Both gloo processes have equal weights and different views, before and after an interruption. Only the
    first process writes. The interrupted run and the whole run end with equal weights."""
    whole, cut = str(tmp_path / "whole"), str(tmp_path / "cut")
    runs = [[free_port(), whole, None], [free_port(), cut, 1], [free_port(), cut, None, "--resume"]]
    options = ["--data", str(faces_folder), "--device", "cpu", *TINY, "--checkpoint-seconds", "1e-9"]
    group = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, json.dumps(runs), *options],
            env={**group, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    outputs = [process.communicate(timeout=300)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert [text.count("wrote") for text in outputs] == [2, 0]
    (views, weights), (other_views, other_weights) = (torch.load(f"{whole}/{rank}.pt") for rank in range(2))
    assert all(torch.equal(a, b) for a, b in zip(weights, other_weights, strict=True))
    assert len(views) == len(other_views) == 3
    assert not any(torch.equal(a, b) for a, b in zip(views, other_views, strict=True))
    for rank, expected in enumerate((views, other_views)):
        later, _ = torch.load(f"{cut}/{rank}.pt")
        assert all(torch.equal(a, b) for a, b in zip(later, expected[1:], strict=True))
    one, two = (load_checkpoint(tmp_path / name / "checkpoint.pt")["step"] for name in ("whole", "cut"))
    assert one["step"] == two["step"] == 3
    for part in ("model", "average"):
        assert all(torch.equal(value, two[part][name]) for name, value in one[part].items()), part


STEPS = 80


def run_on_gpus(data: Path, output: Path, processes: int) -> tuple[str, list[dict[str, Any]]]:
    """Train with 16 views a step. Return the log and the reports of the steps."""
    command: list[object] = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command += ["-m", "lensbox.cli", "train", "--data", data, "--val", data, "--output", output]
    settings = ["--steps", STEPS, "--batch-size", 16 // processes, "--recalibration-views", 64]
    command += ["--device", "cuda", *TINY, *settings, "--log-seconds", "1e-9"]
    # Not every container has NVLink multicast.
    ended = run_python(*command, env={"NCCL_NVLS_ENABLE": "0", "OMP_NUM_THREADS": "2"})
    reports = [json.loads(line) for line in (output / "log.jsonl").read_text().splitlines()]
    return ended.stderr, [report for report in reports if "loss" in report]


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_two_gpus_train_as_one_with_as_many_views(faces_folder: Path, tmp_path: Path) -> None:
    two_said, two = run_on_gpus(faces_folder, tmp_path / "two", processes=2)
    _, one = run_on_gpus(faces_folder, tmp_path / "one", processes=1)
    assert "CUDA graph: captured" in two_said  # with NCCL's all-reduce in it
    assert two[-1]["step"] == one[-1]["step"] == STEPS
    losses, others = ([float(report["loss"]) for report in reports] for reports in (two, one))
    # The views differ, and batch norm sees half as many, so the losses agree only roughly.
    for part in (slice(0, STEPS // 4), slice(-STEPS // 4, None)):
        assert mean(losses[part]) == pytest.approx(mean(others[part]), rel=0.15)
    assert mean(losses[-10:]) < 0.9 * mean(losses[:10])
    views = [json.loads((tmp_path / name / "figures.json").read_text())["views"] for name in ("one", "two")]
    assert views == [16 * STEPS] * 2
    checkpoint = load_checkpoint(tmp_path / "two" / "checkpoint.pt")
    assert len(checkpoint["step"]["generators"]) == 2
    state = load_detector(tmp_path / "two" / "weights.safetensors").state_dict()
    assert all(bool(value.isfinite().all()) for value in state.values())
