"""Compile and capture a step. Capture needs a GPU; the checks for host traffic run without one."""

from typing import Any

import pytest
import torch
from short_runs import SIX_STEPS, make_step, small_detector
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from lensbox.train.data.image_store import SIDE, ImageStore, StoreTensors
from lensbox.train.loss.detection_loss import detection_loss
from lensbox.train.loss.teachers import teach
from lensbox.train.run.compile_and_capture import compile_and_capture
from lensbox.train.settings import TrainConfig
from lensbox.train.views.draws import draw, view_counts
from lensbox.train.views.make_views import make_views


def test_a_failed_compilation_is_reported_and_the_step_runs_eagerly(
    store: ImageStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_args: object, **_kwargs: object) -> None:
        raise RuntimeError("no compiler here")

    monkeypatch.setattr(torch, "compile", broken)
    step = make_step(store, SIX_STEPS.replace(compile=True))
    untouched = {name: value.clone() for name, value in step.model.state_dict().items()}
    compile_and_capture(step)
    assert step.mode == "eager"
    lines = caplog.messages
    assert len(lines) == 2
    assert all("no compiler here" in line for line in lines)
    assert all(torch.equal(value, untouched[name]) for name, value in step.model.state_dict().items())
    step.run(0.5)
    assert step.read_sums()["loss"] > 0


@pytest.mark.filterwarnings("ignore:.*should not be instantiated")  # torch.compile instantiates it
def test_compiled_step_traces_whole(store: ImageStore) -> None:
    """Views, and net with loss, are one graph each: no part falls back to Python inside a captured step."""
    step = make_step(store)
    draws = draw(step.counts, torch.tensor(1.0), "cpu")
    views = torch.compile(step._make_views, fullgraph=True, backend="aot_eager")(draws)
    for one, other in zip(views, step._make_views(draws), strict=True):
        torch.testing.assert_close(one, other)
    compiled = torch.compile(step._forward_loss, fullgraph=True, backend="aot_eager")
    losses = compiled(*views)
    losses.total.backward()
    gradients = [p.grad.clone() for p in step.model.parameters() if p.grad is not None]
    step.optimizer.zero_grad()
    plain = step._forward_loss(*views)
    plain.total.backward()
    torch.testing.assert_close(losses.total, plain.total)
    for one, parameter in zip(gradients, step.model.parameters(), strict=True):
        torch.testing.assert_close(one, parameter.grad)


META = torch.device("meta")


class HostTraffic(TorchFunctionMode):
    """Collect calls that create a tensor from Python numbers, read one back, or use a CPU tensor."""

    MAKERS = ("tensor", "as_tensor", "asarray", "new_tensor", "from_numpy")
    READERS = ("item", "tolist", "numpy", "cpu", "__bool__", "__int__", "__float__", "__index__", "nonzero")

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(function, "__name__", str(function))
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        index = args[1] if name in ("__getitem__", "__setitem__") else ()
        lists = any(isinstance(part, list) for part in (index if isinstance(index, tuple) else (index,)))
        if name in (*self.MAKERS, *self.READERS) or lists or any(x.device.type == "cpu" for x in tensors):
            self.found.append(name)
        return function(*args, **kwargs)


CHANGES = {"soft_chance": 0.5, "light_chance": 0.5, "cover_chance": 0.5, "rotate_chance": 0.5}


@pytest.mark.parametrize("changes", [{}, CHANGES], ids=["plain", "all changes"])
def test_views_net_loss_and_backward_stay_on_the_device(changes: Any) -> None:
    config = TrainConfig().replace(batch_size=16, **changes)
    counts = view_counts(config)
    store = StoreTensors(
        torch.zeros(5, SIDE, SIDE, dtype=torch.uint8, device=META),
        torch.zeros(5, 2, device=META),
        torch.zeros(5, 256, 4, device=META),
        torch.zeros(5, dtype=torch.int64, device=META),
        torch.zeros(5, dtype=torch.int64, device=META),
        torch.zeros(5, device=META),
        torch.zeros(5, device=META),
    )
    model = small_detector().to(META)
    switch = torch.ones((), device=META)
    with HostTraffic() as traffic:
        views = make_views(store, draw(counts, switch, META), counts, config)
        boxes, logits = model(views.images)
        taught = teach([model], [[model] * 4], views.images)
        losses = detection_loss(boxes, logits, views.targets, views.ignored, config, taught)
        losses.total.backward()
    assert traffic.found == []
    assert views.images.shape == (16, 1, 256, 256)
    assert all(p.grad is not None for p in model.parameters())
