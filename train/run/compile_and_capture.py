"""Make a training step fast: compile its parts and capture the whole into a CUDA graph.

On CUDA the step is compiled in pieces (views; teachers; net and loss) and captured into one graph, so that a
small net is not bound by kernel launches. A part that cannot be compiled or captured is reported and runs as
it is.
"""

from __future__ import annotations

import copy
import logging
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch

from lensbox.train.run.step import TrainStep, end_capture_of_random_numbers, random_state, set_random_state

WARMUP_STEPS = 4

logger = logging.getLogger(__name__)


def compile_and_capture(step: TrainStep, progress: float = 0.0) -> None:
    """Make the step as fast as its configuration asks. Capturing does a few real steps."""
    modes = []
    if step.config.compile:
        modes += _compile(step)
    if step.config.cuda_graph and step.device.type == "cuda":
        modes += _capture(step, progress)
    step.mode = " + ".join(modes) if modes else "eager"


def _compile(step: TrainStep) -> list[str]:
    """Compile the parts of a step and use each once. Return the names of the parts that compiled."""
    # Trials must change neither the random numbers of the run nor batch norm's statistics.
    generators, kept = random_state(step.device), copy.deepcopy(step.model.state_dict())
    parts, done = step.parts, []

    def attempt(part: str, name: str, use: Callable[[Callable[..., Any]], Any]) -> None:
        start = time.monotonic()
        try:
            compiled: Callable[..., Any] = torch.compile(getattr(parts, part), dynamic=False)
            use(compiled)
            if step.device.type == "cuda":
                torch.cuda.synchronize(step.device)
        except Exception as error:  # the compiler may fail in any way; training goes on without it
            logger.warning("%s: not possible, going on without: %s", name, _reason(error))
            torch.compiler.reset()
        else:
            logger.info("%s: ready after %.1f s", name, time.monotonic() - start)
            setattr(parts, part, compiled)
            done.append(name)

    draws = step.new_draws()
    attempt("views", "compiled views", lambda views: views(draws))
    batch = parts.views(draws)
    if step.teachers:
        attempt("teachers", "compiled teachers", lambda teachers: teachers(batch.images))
    taught = step.ask_teachers(batch.images)
    attempt("loss", "compiled net and loss", lambda loss: loss(*batch, taught).total.backward())
    step.model.load_state_dict(kept)
    step.optimizer.zero_grad(set_to_none=True)
    set_random_state(generators, step.device)
    return done


def _capture(step: TrainStep, progress: float) -> list[str]:
    """Capture the step's body. Return ["CUDA graph"], or [] if that failed."""
    start = time.monotonic()
    device = step.device
    # Before its capture, torch asks for calls on a stream that is not the default one.
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with warnings.catch_warnings(), torch.cuda.stream(stream):
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
