"""A training step captured into a CUDA graph gives the losses of the uncaptured step."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from lensbox.model import DetectorConfig, FaceDetector
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
    torch.manual_seed(0)
    detector = FaceDetector(DetectorConfig.named("small"))
    return TrainStep(detector, store.tensors, config, device, teachers)


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


@pytest.mark.usefixtures("_deterministic")
@pytest.mark.filterwarnings("ignore:.*does not have a deterministic implementation")
@pytest.mark.parametrize("bf16", [False, True])
def test_captured_step_has_the_losses_of_the_eager_step(
    faces_folder: Path, bf16: bool, caplog: pytest.LogCaptureFixture
) -> None:
    config = CONFIG.replace(bf16=bf16)
    captured = make_step(faces_folder, config)
    compile_and_capture(captured, PROGRESS)
    assert captured.mode == "CUDA graph", caplog.messages
    losses = run_steps(captured, 4)
    assert len(set(losses)) == 4, "each replay draws new views"

    plain = make_step(faces_folder, config.replace(cuda_graph=False))
    run_steps(plain, WARMUP_STEPS)
    assert losses == pytest.approx(run_steps(plain, 4), rel=1e-5)
    assert captured.step == plain.step
    assert captured.is_finite()


@pytest.mark.usefixtures("_deterministic")
@pytest.mark.filterwarnings("ignore:.*does not have a deterministic implementation")
def test_captured_with_teachers_and_every_change_of_the_views(
    faces_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def teacher(seed: int) -> FaceDetector:
        torch.manual_seed(seed)
        return FaceDetector(DetectorConfig.named("small")).requires_grad_(False)

    changes = {f"{name}_chance": 0.5 for name in ("soft", "light", "cover", "rotate")}
    config = CONFIG.replace(**changes)
    captured = make_step(faces_folder, config, Teachers((teacher(1),), ((teacher(2), teacher(3)),)))
    compile_and_capture(captured, PROGRESS)
    assert captured.mode == "CUDA graph", caplog.messages
    losses = run_steps(captured, 4)
    captured.recalibrate()
    losses += run_steps(captured, 2)
    plain_config = config.replace(cuda_graph=False)
    plain = make_step(faces_folder, plain_config, Teachers((teacher(1),), ((teacher(2), teacher(3)),)))
    run_steps(plain, WARMUP_STEPS)
    assert losses == pytest.approx(run_steps(plain, 6), rel=0.02)


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
