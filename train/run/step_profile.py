"""How long a training step and its parts take."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from lensbox.train.loss.detection_loss import detection_loss
from lensbox.train.run.step import TrainStep

UNITLESS = ("loss_share", "images_per_second")


def profile_lines(step: TrainStep) -> list[str]:
    """What `profile_step` finds, for people."""
    return [
        f"{name:18} {value:10.3f}{'' if name in UNITLESS else ' ms'}"
        for name, value in profile_step(step).items()
    ]


def profile_step(step: TrainStep, repeats: int = 50) -> dict[str, float]:
    """Times a prepared step, in milliseconds (medians of `repeats` runs).

    Returns:
        step: all of it. views: drawing a batch. teachers: their predictions, if there are any. loss:
        assignment, loss and its backward down to the predictions, compiled and captured as the step is.
        loss_share: loss / step.
        images_per_second.
    """
    whole = _median(lambda: step.run(1.0), step.device, repeats)
    views = _median(_captured(step.draw_views, step), step.device, repeats)

    batch = step.draw_views()
    taught = step.ask_teachers(batch.images)
    with torch.no_grad():
        boxes, logits = step.model(batch.images)
    boxes = boxes.float().detach().requires_grad_()
    logits = logits.float().detach().requires_grad_()

    def loss_of(boxes: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        targets = (batch.targets, batch.ignored)
        return detection_loss(boxes, logits, *targets, step.levels, step.config, taught).total

    compiled = torch.compile(loss_of, dynamic=False) if step.config.speed.compile else loss_of

    def loss_and_backward() -> None:
        boxes.grad = logits.grad = None
        compiled(boxes, logits).backward()

    loss = _median(_captured(loss_and_backward, step), step.device, repeats)
    teachers = {}
    if step.teachers:
        ask = _captured(lambda: step.ask_teachers(batch.images), step)
        teachers["teachers"] = _median(ask, step.device, repeats)
    return {
        "step": whole,
        "views": views,
        **teachers,
        "loss": loss,
        "loss_share": loss / whole,
        "images_per_second": 1000 * step.config.optimizer.batch_size / whole,
    }


def _captured(function: Callable[[], Any], step: TrainStep) -> Callable[[], Any]:
    """`function` as a CUDA graph, where the step itself is one."""
    if "CUDA graph" not in step.mode:
        return function
    stream = torch.cuda.Stream(step.device)
    stream.wait_stream(torch.cuda.current_stream(step.device))
    with torch.cuda.stream(stream):
        for _ in range(3):
            function()
    torch.cuda.current_stream(step.device).wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    return graph.replay


def _median(function: Callable[[], Any], device: torch.device, repeats: int) -> float:
    times = []
    for index in range(repeats + 3):
        start = time.perf_counter()
        function()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        if index >= 3:
            times.append(1000 * (time.perf_counter() - start))
    return sorted(times)[len(times) // 2]
