"""Compiling on a CPU; `test_captured_step` has what needs a GPU."""

import pytest
import torch
from short_runs import CPU, SHORT_RUN

from lensbox.model import DetectorConfig, FaceDetector
from lensbox.train.data.image_store import ImageStore
from lensbox.train.run.compile_and_capture import compile_and_capture
from lensbox.train.run.step import TrainStep

CONFIG = SHORT_RUN.replace(steps=6, ema_decay=0.9, ema_warmup=2.0)


def test_what_cannot_be_compiled_is_reported_and_run_plainly(
    store: ImageStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_args: object, **_kwargs: object) -> None:
        raise RuntimeError("no compiler here")

    monkeypatch.setattr(torch, "compile", broken)
    config = CONFIG.replace(compile=True)
    step = TrainStep(FaceDetector(DetectorConfig.named("small")), store.tensors, config, CPU)
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
    step = TrainStep(FaceDetector(DetectorConfig.named("small")), store.tensors, CONFIG, CPU)
    from lensbox.train.views.draws import draw

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
