"""Make a training step fast: compile its parts and capture the whole into a CUDA graph; and time it.

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
from statistics import median
from typing import Any

import torch
from torch import Tensor

from lensbox.train.loss.detection_loss import detection_loss
from lensbox.train.run.step import TrainStep, end_capture_of_random_numbers, random_state, set_random_state

WARMUP_STEPS = 4
PROFILE_REPEATS = 50

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
    with warnings.catch_warnings():
        # A hint that a capturable optimiser is slower uncaptured; the capture follows.
        warnings.filterwarnings("ignore", "This instance was constructed with capturable=True")
        _on_another_stream(lambda: step.run(progress), WARMUP_STEPS, device)
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


def _on_another_stream(function: Callable[[], Any], times: int, device: torch.device) -> None:
    """Call a function before its capture, as torch asks: on a stream that is not the default one."""
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        for _ in range(times):
            function()
    torch.cuda.current_stream(device).wait_stream(stream)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:800]}"


def profile_lines(step: TrainStep) -> list[str]:
    """Time a prepared step and its parts; return the medians of PROFILE_REPEATS runs as lines.

    `loss` is assignment, loss and its backward down to the predictions, compiled and captured as the step is.
    """
    whole = _median_ms(lambda: step.run(1.0), step.device)
    views = _median_ms(_captured(step.draw_views, step), step.device)
    batch = step.draw_views()
    taught = step.ask_teachers(batch.images)
    with torch.no_grad():
        predictions = step.model(batch.images)
    boxes, logits = (value.float().detach().requires_grad_() for value in predictions)

    def loss_of(boxes: Tensor, logits: Tensor) -> Tensor:
        targets = (batch.targets, batch.ignored)
        return detection_loss(boxes, logits, *targets, step.config, taught).total

    compiled = torch.compile(loss_of, dynamic=False) if step.config.compile else loss_of

    def loss_and_backward() -> None:
        boxes.grad = logits.grad = None
        compiled(boxes, logits).backward()

    loss = _median_ms(_captured(loss_and_backward, step), step.device)
    times = {"step": whole, "views": views, "loss": loss}
    if step.teachers:
        ask = _captured(lambda: step.ask_teachers(batch.images), step)
        times["teachers"] = _median_ms(ask, step.device)
    rate = 1000 * step.config.batch_size / whole
    return [
        *(f"{name:18} {value:10.3f} ms" for name, value in times.items()),
        f"{'loss_share':18} {loss / whole:10.3f}",
        f"{'images_per_second':18} {rate:10.3f}",
    ]


def _captured(function: Callable[[], Any], step: TrainStep) -> Callable[[], Any]:
    """Capture a function into a CUDA graph if the step itself is one."""
    if step.captured is None:
        return function
    _on_another_stream(function, 3, step.device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    return graph.replay


def _median_ms(function: Callable[[], Any], device: torch.device) -> float:
    times = []
    for _ in range(PROFILE_REPEATS + 3):
        start = time.perf_counter()
        function()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(1000 * (time.perf_counter() - start))
    return median(times[3:])
