"""Makes a training step fast: compiles its parts and captures the whole into a CUDA graph.

On CUDA the step is compiled in pieces (views; teachers; net and loss) and captured into one graph, so that a
small net is not bound by kernel launches. What of that fails is reported and runs plainly.
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

from lensbox.train.loss.detection_loss import Losses
from lensbox.train.run.random_state import end_capture_of_random_numbers, random_state, set_random_state
from lensbox.train.run.step import TrainStep

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
