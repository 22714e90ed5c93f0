"""Compile and capture a step. Capture needs a GPU; the checks for host traffic run without one."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from short_runs import SIX_STEPS, make_step, small_detector
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from lensbox.evaluation.data.labels import read_labels
from lensbox.train.loss.detection_loss import detection_loss, teach
from lensbox.train.photographs import SIDE, StoreTensors, load_images, store_tensors
from lensbox.train.run.compile_and_capture import WARMUP_STEPS, compile_and_capture
from lensbox.train.run.origin import Teachers, fold_count
from lensbox.train.run.step import TrainingError, TrainStep
from lensbox.train.settings import TrainConfig
from lensbox.train.views.make_views import draw, make_views

PROGRESS = 0.5
ALL_CHANGES = {f"{name}_chance": 0.5 for name in ("soft", "light", "cover", "rotate")}


@pytest.mark.parametrize("part", ["compiled views", "compiled net and loss"])
def test_a_failed_compilation_names_the_option_that_does_without(
    store: StoreTensors, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    def broken(function: Any, **_: object) -> Any:
        if (function.__name__ == "draw_views") == (part == "compiled views"):
            raise RuntimeError("no compiler here")
        return function

    monkeypatch.setattr(torch, "compile", broken)
    with pytest.raises(TrainingError, match=f"{part} failed, --no-compile trains without: .*no compiler"):
        compile_and_capture(make_step(store, SIX_STEPS.replace(compile=True)))


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore:.*should not be instantiated")  # torch.compile instantiates it
def test_compiled_step_traces_whole(store: StoreTensors) -> None:
    """Views, and net with loss, are one graph each: no part falls back to Python inside a captured step."""
    step = make_step(store)
    draws = draw(step.config, torch.tensor(1.0))
    views = torch.compile(step.draw_views, fullgraph=True, backend="eager")(draws)
    torch.testing.assert_close(views, step.draw_views(draws))
    totals, gradients = [], []
    for loss in (torch.compile(step.losses, fullgraph=True, backend="eager"), step.losses):
        step.optimizer.zero_grad()
        totals.append(loss(*views).loss)
        totals[-1].backward()
        gradients.append([p.grad for p in step.model.parameters()])
    torch.testing.assert_close(*totals)
    torch.testing.assert_close(*gradients)


META = torch.device("meta")
MAKERS_AND_READERS = {"tensor", "as_tensor", "asarray", "new_tensor", "from_numpy", "item", "tolist", "numpy"}
MAKERS_AND_READERS |= {"cpu", "__bool__", "__int__", "__float__", "__index__", "nonzero"}


class HostTraffic(TorchFunctionMode):
    """Collect calls that create a tensor from Python numbers, read one back, or use a CPU tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(function, "__name__", str(function))
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        index = args[1] if name in ("__getitem__", "__setitem__") else ()
        lists = any(isinstance(part, list) for part in (index if isinstance(index, tuple) else (index,)))
        if name in MAKERS_AND_READERS or lists or any(x.device.type == "cpu" for x in tensors):
            self.found.append(name)
        return function(*args, **kwargs)


def test_views_net_loss_and_backward_stay_on_the_device() -> None:
    config = TrainConfig().replace(batch_size=16, **ALL_CHANGES)
    pixels, boxes, flags = torch.zeros(5, SIDE, SIDE).byte(), torch.zeros(1, 4), torch.zeros(1).bool()
    made = store_tensors(pixels, torch.ones(5, 2), [boxes] * 5, [flags] * 5, torch.ones(5), 256)
    store = StoreTensors(*(tensor.to(META) for tensor in made))
    model = small_detector().to(META)
    switch = torch.ones((), device=META)
    with HostTraffic() as traffic:
        views = make_views(store, draw(config, switch), config)
        boxes, logits = model(views.images)
        taught = teach([[model], [model] * 4], views.images)
        losses = detection_loss(boxes, logits, views.targets, views.ignored, config, taught)
        losses.loss.backward()
    assert traffic.found == []
    assert views.images.shape == (16, 1, 256, 256)
    assert all(p.grad is not None for p in model.parameters())


CONFIG = TrainConfig().replace(
    model="small", steps=20, batch_size=8, compile=False, bf16=False, max_targets=8, max_ignored=8
)


def step_on_gpu(faces_folder: Path, config: TrainConfig, taught: bool = False) -> TrainStep:
    """Return a step; taught: with a teacher that saw everything and two that left a fold out."""
    whole, *fold = (small_detector(seed).requires_grad_(False) for seed in (1, 2, 3))
    teachers: Teachers = ((whole,), tuple(fold)) if taught else ()
    images = read_labels([faces_folder])[0]
    store = load_images(images, "cuda:0", config, fold_count(teachers))
    return TrainStep(small_detector(0), store, config, teachers)


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


@pytest.mark.gpu
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
    captured = step_on_gpu(faces_folder, config, taught)
    compile_and_capture(captured, PROGRESS)
    assert captured.mode == "CUDA graph", caplog.messages
    losses = run_steps(captured, 4)
    assert len(set(losses)) == 4, "each replay draws new views"
    plain = step_on_gpu(faces_folder, config.replace(cuda_graph=False), taught)
    run_steps(plain, WARMUP_STEPS)
    assert losses == pytest.approx(run_steps(plain, len(losses)), rel=tolerance)
    assert captured.step == plain.step
    assert captured.is_finite()


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")  # torch's own, inside its compiler
def test_compiled_and_captured(faces_folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    step = step_on_gpu(faces_folder, CONFIG.replace(compile=True, bf16=True))
    compile_and_capture(step, PROGRESS)
    assert step.mode == "compiled views + compiled net and loss + CUDA graph", caplog.messages
    assert all(loss > 0 for loss in run_steps(step, 4))
    assert step.is_finite()
