"""Make a training step fast: compile its parts and capture the whole into a CUDA graph.

On CUDA the step is compiled in pieces (views; teachers; net and loss) and captured into one graph, so that a
small net is not bound by kernel launches.
"""

import copy
import logging
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from lensbox.runtime.detect.captured_detect import without_collection
from lensbox.train.loss.detection_loss import Losses
from lensbox.train.run.step import TrainingError, TrainStep

WARMUP_STEPS = 4

logger = logging.getLogger(__name__)


def compile_and_capture(step: TrainStep, progress: float = 0.0) -> None:
    """Make the step as fast as its configuration asks. Capturing does a few real steps.

    Raise TrainingError if a part cannot be compiled or captured; it names the option that does without.
    """
    modes = []
    if step.config.compile:
        modes += _compile(step)
    if step.config.cuda_graph and step.device.type == "cuda":
        with _timed("CUDA graph", "--no-cuda-graph"):
            _capture(step, progress)
        modes.append("CUDA graph")
    step.mode = " + ".join(modes) if modes else "eager"


@contextmanager
def _timed(name: str, without: str) -> Iterator[None]:
    start = time.monotonic()
    try:
        yield
    except Exception as error:  # the compiler may fail in any way; capture fails on a hidden synchronisation
        reason = f"{type(error).__name__}: {str(error)[:800]}"
        raise TrainingError(f"{name} failed, {without} trains without: {reason}") from error
    logger.info("%s: ready after %.1f s", name, time.monotonic() - start)


def _compile(step: TrainStep) -> list[str]:
    """Compile the parts of a step and use each once. Return their names."""
    done = []

    def compile_part(part: str, name: str, *arguments: Any) -> Any:
        with _timed(name, "--no-compile"):
            compiled: Callable[..., Any] = torch.compile(getattr(step, part), dynamic=False)
            found = compiled(*arguments)
            if isinstance(found, Losses):
                found.loss.backward()
            if step.device.type == "cuda":
                torch.cuda.synchronize(step.device)
        setattr(step, part, compiled)
        done.append(name)
        return found

    # Trials must change neither the random numbers of the run nor batch norm's statistics.
    kept = copy.deepcopy(step.model.state_dict())
    with torch.random.fork_rng([step.device] if step.device.type == "cuda" else []):
        batch, taught = compile_part("draw_views", "compiled views", step.new_draws()), None
        if step.teachers:
            taught = compile_part("ask_teachers", "compiled teachers", batch.images)
        compile_part("losses", "compiled net and loss", *batch, taught)
    step.model.load_state_dict(kept)
    step.optimizer.zero_grad(set_to_none=True)
    return done


def _capture(step: TrainStep, progress: float) -> None:
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
    with without_collection(), torch.cuda.graph(graph):
        step.body()
    step.captured = graph
