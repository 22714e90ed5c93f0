"""The step and its weight average."""

from typing import Any

import torch
from short_runs import SIX_STEPS, make_step

from lensbox.model import FaceDetector
from lensbox.train.data.image_store import StoreTensors
from lensbox.train.run.step import TrainStep


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
