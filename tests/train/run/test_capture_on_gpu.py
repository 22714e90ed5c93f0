"""A training step captured into a CUDA graph gives the losses of the uncaptured step."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from short_runs import small_detector

from lensbox.train.data.image_store import load_images
from lensbox.train.data.labels import read_labels
from lensbox.train.loss.teachers import Teachers
from lensbox.train.run.compile_and_capture import WARMUP_STEPS, compile_and_capture
from lensbox.train.run.step import TrainStep
from lensbox.train.settings import TrainConfig

pytestmark = pytest.mark.gpu

CONFIG = TrainConfig().replace(
    model="small", steps=20, batch_size=8, compile=False, bf16=False, max_targets=8, max_ignored=8
)
PROGRESS = 0.5


def make_step(faces_folder: Path, config: TrainConfig, teachers: Teachers | None = None) -> TrainStep:
    device = torch.device("cuda", 0)
    teachers = teachers or Teachers()
    images = read_labels([faces_folder])[0]
    store = load_images(images, device, capacity=8, workers=2, folds=teachers.folds)
    return TrainStep(small_detector(0), store.tensors, config, device, teachers)


def run_steps(step: TrainStep, count: int) -> list[float]:
    """Return the loss of each step."""
    losses = []
    for _ in range(count):
        step.read_sums()  # of the steps before
        step.run(PROGRESS)
        losses.append(step.read_sums()["loss"])
    return losses


@pytest.fixture
def _deterministic() -> Iterator[None]:
    """Use deterministic kernels where torch has them: the rounding of atomic sums grows over the steps."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


def teachers() -> Teachers:
    whole, *fold = (small_detector(seed).requires_grad_(False) for seed in (1, 2, 3))
    return Teachers((whole,), (tuple(fold),))


ALL_CHANGES = {f"{name}_chance": 0.5 for name in ("soft", "light", "cover", "rotate")}


@pytest.mark.usefixtures("_deterministic")
@pytest.mark.filterwarnings("ignore:.*does not have a deterministic implementation")
@pytest.mark.parametrize(
    ("changes", "taught", "tolerance"),
    [({}, False, 1e-5), ({"bf16": True}, False, 1e-5), (ALL_CHANGES, True, 0.02)],
    ids=["float32", "bfloat16", "teachers and all changes of views"],
)
def test_captured_step_has_the_losses_of_the_eager_step(
    faces_folder: Path, changes: Any, taught: bool, tolerance: float, caplog: pytest.LogCaptureFixture
) -> None:
    config = CONFIG.replace(**changes)
    captured = make_step(faces_folder, config, teachers() if taught else None)
    compile_and_capture(captured, PROGRESS)
    assert captured.mode == "CUDA graph", caplog.messages
    losses = run_steps(captured, 4)
    assert len(set(losses)) == 4, "each replay draws new views"
    if taught:
        captured.recalibrate()  # leaves training as it was
        losses += run_steps(captured, 2)

    plain = make_step(faces_folder, config.replace(cuda_graph=False), teachers() if taught else None)
    run_steps(plain, WARMUP_STEPS)
    assert losses == pytest.approx(run_steps(plain, len(losses)), rel=tolerance)
    assert captured.step == plain.step
    assert captured.is_finite()


@pytest.mark.filterwarnings("ignore")  # torch's own, inside its compiler
def test_compiled_and_captured(faces_folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    step = make_step(faces_folder, CONFIG.replace(compile=True, bf16=True))
    compile_and_capture(step, PROGRESS)
    assert step.mode == "compiled views + compiled net and loss + CUDA graph", caplog.messages
    assert all(loss > 0 for loss in run_steps(step, 4))
    assert step.is_finite()


def test_a_failed_capture_is_reported_and_the_step_runs_eagerly(
    faces_folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    step = make_step(faces_folder, CONFIG)
    body = step.body

    def waits_for_the_device() -> None:
        body()
        step.is_finite()

    monkeypatch.setattr(step, "body", waits_for_the_device)
    compile_and_capture(step, PROGRESS)
    assert step.mode == "eager"
    assert "CUDA graph: not possible" in caplog.messages[-1]
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    assert all(loss > 0 for loss in run_steps(step, 2))
