"""Make a training step fast: compile its parts, capture the whole into a CUDA graph; and time it.

On CUDA the step is compiled in pieces (views; teachers; net and loss) and captured into one graph, so that a
small net is not bound by kernel launches. What fails is reported and runs plainly.
"""

from __future__ import annotations

import copy
import logging
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lensbox.train.loss.detection_loss import Losses, detection_loss
from lensbox.train.run.step import TrainStep, end_capture_of_random_numbers, random_state, set_random_state

WARMUP_STEPS = 4

logger = logging.getLogger(__name__)


def compile_and_capture(step: TrainStep, progress: float = 0.0) -> None:
    """Makes the step as fast as its configuration asks, and does a few real steps on the way."""
    modes = []
    if step.config.speed.compile:
        modes += _compile(step)
    if step.config.speed.cuda_graph and step.device.type == "cuda":
        modes += _capture(step, progress)
    step.mode = " + ".join(modes) if modes else "eager"


def _compile(step: TrainStep) -> list[str]:
    """Compiles the parts of a step. Returns the names of those that could be."""
    done, parts = [], step.parts
    generators = random_state(step.device)  # trying things out must not change what a seed gives
    draws = step.new_draws()
    views = _attempt("compiled views", parts.views, lambda function: function(draws), step.device)
    if views is not None:
        parts.views = views
        done.append("compiled views")
    batch = parts.views(draws)
    if step.teachers:
        asked = _attempt(
            "compiled teachers", parts.teachers, lambda function: function(batch.images), step.device
        )
        if asked is not None:
            parts.teachers = asked
            done.append("compiled teachers")
    taught = step.ask_teachers(batch.images)

    def forward_backward(function: Callable[..., Losses]) -> None:
        function(*batch, taught).total.backward()

    def forward_backward_net(function: Callable[[Tensor], tuple[Tensor, Tensor]]) -> None:
        with step.arithmetic.autocast():
            boxes, logits = function(batch.images)
        (boxes.mean() + logits.mean()).backward()

    # Batch norm's statistics must not be touched by trying things out.
    kept = copy.deepcopy(step.model.state_dict())
    losses = _attempt("compiled net and loss", parts.loss, forward_backward, step.device)
    _restore(step, kept)
    if losses is not None:
        parts.loss = losses
        done.append("compiled net and loss")
    else:
        net = _attempt("compiled net", parts.net, forward_backward_net, step.device)
        _restore(step, kept)
        if net is not None:
            parts.net = net
            done.append("compiled net")
    set_random_state(generators, step.device)
    return done


def _restore(step: TrainStep, state: dict[str, Tensor]) -> None:
    step.model.load_state_dict(state)
    step.optimizer.zero_grad(set_to_none=True)


def _attempt(
    name: str,
    function: Callable[..., Any],
    use: Callable[[Callable[..., Any]], Any],
    device: torch.device,
) -> Callable[..., Any] | None:
    """Compiles `function` and uses it once. Returns None, having said why, if that fails."""
    start = time.monotonic()
    try:
        compiled: Callable[..., Any] = torch.compile(function, dynamic=False)
        use(compiled)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    except Exception as error:  # the compiler may fail in any way; training goes on without it
        logger.warning("%s: not possible, going on without: %s", name, _reason(error))
        torch._dynamo.reset()
        return None
    logger.info("%s: ready after %.1f s", name, time.monotonic() - start)
    return compiled


def _capture(step: TrainStep, progress: float) -> list[str]:
    """Captures the step's body. Returns what the mode is to say of it."""
    start = time.monotonic()
    device = step.device
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream), warnings.catch_warnings():
        # A hint that a capturable optimiser is slower uncaptured; the capture follows.
        warnings.filterwarnings("ignore", "This instance was constructed with capturable=True")
        for _ in range(WARMUP_STEPS):
            step.run(progress)
    torch.cuda.current_stream(device).wait_stream(stream)
    torch.cuda.synchronize(device)
    graph = torch.cuda.CUDAGraph()
    try:
        # A failed capture leaves the stream of torch.cuda.graph current; the outer context takes it back.
        with torch.cuda.stream(torch.cuda.current_stream(device)), torch.cuda.graph(graph):
            step.body()
    except Exception as error:  # capture fails on any hidden synchronisation; training goes on without
        logger.warning("CUDA graph: not possible, going on without: %s", _reason(error))
        torch.cuda.synchronize(device)
        end_capture_of_random_numbers()
        step.optimizer.zero_grad(set_to_none=True)
        return []
    step.captured = graph
    logger.info("CUDA graph: captured after %.1f s", time.monotonic() - start)
    return ["CUDA graph"]


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:800]}"


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
