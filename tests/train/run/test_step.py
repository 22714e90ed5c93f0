"""The step and its weight average."""

from typing import Any

import pytest
import torch
from short_runs import SIX_STEPS, make_step

from lensbox.model import FaceDetector
from lensbox.train.photographs import StoreTensors
from lensbox.train.run.step import TrainStep, ema_weight, learning_rate, mosaic_on
from lensbox.train.settings import TrainConfig


def test_recalibrated_statistics_belong_to_the_average_net(store: StoreTensors) -> None:
    step = make_step(store)
    for _ in range(3):
        step.run(0.5)
    seen = []
    stem: Any = step.average.backbone.stem
    first_conv, first_norm = stem[0][:2]
    handle = first_conv.register_forward_hook(lambda _module, _inputs, output: seen.append(output.double()))
    step.recalibrate()
    handle.remove()
    assert sum(map(len, seen)) == 4
    # Means over batches of the statistics of each.
    means = torch.stack([output.mean((0, 2, 3)) for output in seen]).mean(0)
    variances = torch.stack([output.var((0, 2, 3)) for output in seen]).mean(0)
    torch.testing.assert_close(first_norm.running_mean.double(), means, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(first_norm.running_var.double(), variances, rtol=1e-3, atol=1e-4)
    assert not step.average.training


def test_average_follows_weights_and_statistics(store: StoreTensors) -> None:
    step = make_step(store)
    before = {name: value.clone() for name, value in step.average.state_dict().items()}
    step.run(0.5)
    weight = 1 - 1 / 2  # decay (1 + 0) / (2 + 0)
    learned, moved = step.model.state_dict(), 0
    for name, value in step.average.state_dict().items():
        if value.is_floating_point():
            torch.testing.assert_close(value, before[name] + weight * (learned[name] - before[name]))
            moved += int(not torch.equal(value, before[name]))
    assert moved > 10
    assert not step.average.training


def test_bfloat16_on_the_cpu_keeps_wide_depthwise_convolutions_in_float32(store: StoreTensors) -> None:
    step = TrainStep(FaceDetector(), store, SIX_STEPS.replace(bf16=True))
    inputs = torch.rand(2, 112, 8, 8, dtype=torch.bfloat16)
    convolutions = [m for m in step.model.modules() if isinstance(m, torch.nn.Conv2d)]
    wide = next(m for m in convolutions if m.kernel_size == (5, 5) and m.groups == 112 and m.stride == (1, 1))
    with torch.autocast("cpu", torch.bfloat16):
        output = wide(inputs)
    exact = torch.nn.functional.conv2d(inputs.float(), wide.weight, padding=2, groups=112)
    assert output.dtype == torch.bfloat16
    assert torch.equal(output, exact.to(torch.bfloat16))  # rounded once, at the end


def test_learning_rate_rises_then_falls() -> None:
    config = TrainConfig().replace(learning_rate=1.0, final_learning_rate=0.1, warmup_progress=0.1)
    rates = [learning_rate(i / 100, config) for i in range(101)]
    assert [rates[i] for i in (0, 5, 10, 55, 100)] == pytest.approx([1e-3, 0.5, 1.0, 0.55, 0.1])
    assert rates[10:] == sorted(rates[10:], reverse=True)


def test_average_forgets_the_start_and_mosaics_end() -> None:
    config = TrainConfig().replace(ema_decay=0.999, ema_warmup=10, plain_progress=0.2)
    assert ema_weight(0, config) == pytest.approx(0.9)
    assert ema_weight(10**6, config) == pytest.approx(0.001)
    # The default reaches back over about a ninth of a run, not over its last few steps.
    assert 1 / ema_weight(15_000, TrainConfig()) == pytest.approx(15_000 / 9, rel=0.01)
    assert mosaic_on(0.79, config) == 1
    assert mosaic_on(0.81, config) == 0
