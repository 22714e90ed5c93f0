"""The article's experiment: a training step of its net in phases, once for each way to the loss.

`lensbox bench article` calls `run`; docs/article.md explains the rows and the results.
"""

import re
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from fake_data import SLOTS, FakeDataset
from losses import APPROACHES, Approach, Loss, move
from torch.profiler import profile, record_function, tensorboard_trace_handler

from lensbox.bench.measure import UnavailableError, WrongAnswerError, markdown, number
from lensbox.bench.ops.loss import boxes_of, call_of, make_loss_batch
from lensbox.bench.ops.loss import check as check_loss
from lensbox.common.machine import cpu_name
from lensbox.model import ArticleNet
from lensbox.runtime.device import choose_device

PHASES = ("copy data", "forward", "calc loss", "backward", "optimizer")
PUBLISHED_ON = "one NVIDIA L4, torch 2.4, a batch of 1,024"
ROUNDS, QUICK_ROUNDS = 20, 3


@dataclass(frozen=True)
class Scale:
    """The size of the experiment. autocast: compute in bfloat16. compiled: by torch.compile."""

    batch: int
    channels: tuple[int, int, int, int]
    hidden: int
    autocast: bool
    compiled: bool


ARTICLE = Scale(1024, (32, 64, 128, 256), 16384, autocast=True, compiled=True)
FOR_A_CPU = Scale(32, (2, 4, 8, 8), 64, autocast=False, compiled=False)


# An approach with its medians in milliseconds: one for each phase; of whole steps, None without them.
Row = tuple[Approach, list[float], float | None]


class Experiment:
    """The net, its optimizer and one batch on the host, which all approaches share."""

    def __init__(self, device: torch.device, scale: Scale) -> None:
        self.device, self.scale = device, scale
        torch.manual_seed(0)
        with device:
            net = ArticleNet(scale.channels, scale.hidden, SLOTS)
        self.net = torch.compile(net, dynamic=False) if scale.compiled else net
        # The rate is 0, so that every step sees the same weights.
        self.optimizer = torch.optim.SGD(net.parameters(), lr=0.0, fused=True)
        images, boxes = zip(*(FakeDataset(scale.batch)[index] for index in range(scale.batch)), strict=True)
        self.images = self.pinned(torch.stack(images))
        self.boxes = [of_sample.to(torch.uint8) for of_sample in boxes]

    def pinned(self, targets: Any) -> Any:
        """Return targets in page-locked memory if there is a GPU to copy them to."""
        if self.device.type != "cuda":
            return targets
        return [each.pin_memory() for each in targets] if isinstance(targets, list) else targets.pin_memory()

    def synchronize(self) -> None:
        """Wait for the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def step(self, approach: Approach, loss: Loss, targets: Any) -> Iterator[None]:
        """Do a training step, with a pause after each of PHASES. Without a gradient it ends with the loss."""
        images, moved = self.images.to(self.device, non_blocking=True), move(targets, self.device)
        yield
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.scale.autocast):
            pred = self.net(images)
        yield
        value = loss(pred if approach.has_gradient else pred.detach(), moved)
        yield
        if approach.has_gradient:
            self.optimizer.zero_grad(set_to_none=True)
            value.backward()
            yield
            self.optimizer.step()
            yield


def run(device: str, batch: int | None, quick: bool, chart: Path | None, trace: Path | None) -> None:
    """Check and time all approaches, and print a table.

    At the end, raise WrongAnswerError if a loss of Lensbox is wrong.

    batch: samples; None for the article's number, or few on a CPU.
    quick: few steps, and nothing by torch.compile.
    chart: PNG file to write. trace: folder to write a profiler trace of each approach to.
    """
    if chart is not None:
        import matplotlib  # noqa: F401  (a missing package is an error now, not after minutes)
    where = choose_device(device)
    on_gpu = where.type == "cuda"
    scale = ARTICLE if on_gpu else FOR_A_CPU
    scale = replace(scale, batch=batch or scale.batch, compiled=scale.compiled and not quick)
    machine = (
        torch.cuda.get_device_name(where) if on_gpu else f"{torch.get_num_threads()} threads of {cpu_name()}"
    )
    setting = f"{machine}, torch {torch.__version__}, a batch of {scale.batch:,}"
    print(f"{setting}\n{scale}\n")
    experiment = Experiment(where, scale)
    ready: list[tuple[Approach, Loss, Any]] = []
    notes, wrong = [], []
    for approach in APPROACHES:
        try:
            if quick and "compile" in approach.name:
                raise UnavailableError("left out by --quick")
            loss = approach.load(where)
            check(approach, loss, experiment)
            ready.append((approach, loss, experiment.pinned(approach.collate(experiment.boxes))))
        except UnavailableError as error:
            notes.append(f"{approach.name}: not available: {error}")
        except Exception as error:  # a peer may fail in any way; the other rows go on
            notes.append(f"{approach.name}: WRONG: {error}")
            wrong += [approach.name] if approach.name.startswith("Lensbox") else []
    rows = measure(experiment, ready, QUICK_ROUNDS if quick else ROUNDS)
    # Figures of another size of the experiment would say nothing about this run.
    published = on_gpu and scale.batch == ARTICLE.batch
    if not published:
        notes.append(f"without the article's figures, which are of {PUBLISHED_ON}")
    print(table(rows, scale.batch, notes, published))
    if trace is not None:
        for arguments in ready:
            write_trace(trace / re.sub(r"[^a-z0-9]+", "_", arguments[0].name.lower()), experiment, *arguments)
        print(f"wrote {trace}")
    if chart is not None:
        write_chart(chart, rows, setting, published)
        print(f"wrote {chart}")
    if wrong:
        raise WrongAnswerError(f"losses of Lensbox are wrong: {', '.join(wrong)}")


def check(approach: Approach, loss: Loss, experiment: Experiment) -> None:
    """Compare loss and gradient with the reference in float64. Raise WrongAnswerError.

    The boxes are made up: an untrained net predicts inverted ones, for which GIoU is not defined.
    """
    device, has_gradient = experiment.device, approach.has_gradient
    dtypes = (torch.bfloat16 if experiment.scale.autocast else torch.float32, torch.uint8)
    pred, targets = make_loss_batch(experiment.scale.batch, SLOTS, None, device, dtypes, weighted=False)
    collated = move(approach.collate([rows.cpu() for rows in boxes_of(targets)]), device)
    call = call_of(lambda _: lambda pred: loss(pred, collated), pred, targets, has_gradient)
    check_loss(pred, targets, has_gradient, approach.name, call())


def measure(experiment: Experiment, ready: list[tuple[Approach, Loss, Any]], rounds: int) -> list[Row]:
    """Time the approaches in turns, after a round that warms up: phases, and whole steps without waits."""
    taken: list[list[list[float]]] = [[] for _ in ready]
    for _ in range(rounds + 1):
        for arguments, samples in zip(ready, taken, strict=True):
            phases = phase_times(experiment, experiment.step(*arguments))
            start = time.perf_counter()
            for _ in experiment.step(*arguments):
                pass
            experiment.synchronize()
            samples.append([*phases, 1e3 * (time.perf_counter() - start)])
    rows = []
    for (approach, _, _), samples in zip(ready, taken, strict=True):
        *phases, step = (statistics.median(times) for times in zip(*samples[1:], strict=True))
        rows.append((approach, phases, step if approach.has_gradient else None))
    return rows


def phase_times(experiment: Experiment, step: Iterator[None]) -> list[float]:
    """Return the milliseconds of each phase of a step, up to its result."""
    times = []
    experiment.synchronize()
    for name in PHASES:
        start = time.perf_counter()
        with record_function(name):
            if next(step, step) is step:  # ended
                break
            experiment.synchronize()
        times.append(1e3 * (time.perf_counter() - start))
    return times


def table(rows: list[Row], batch: int, notes: list[str], with_published: bool) -> str:
    """Return a line for each approach, with the article's figures on the right where they compare."""
    published = [f"article's {phase}" for phase in PHASES[:3]] if with_published else []
    lines = []
    for approach, phases, step in rows:
        cells = [number(value) for value in phases]
        whole = ["", ""] if step is None else [number(step), number(1e3 * batch / step)]
        theirs = [f"{value:g}" for value in approach.published[: len(published)]]
        cells += [""] * (len(PHASES) - len(cells)) + whole + theirs + [""] * (len(published) - len(theirs))
        lines.append([approach.name, *cells])
    return markdown("Medians, ms", ["row", *PHASES, "whole step", "images/s", *published], lines, notes)


def write_trace(folder: Path, experiment: Experiment, approach: Approach, loss: Loss, targets: Any) -> None:
    """Write a trace of one step, which TensorBoard and Perfetto open, with the phases by name."""
    # acc_events: torch 2.11 warns without it, also of a single cycle.
    with profile(acc_events=True, on_trace_ready=tensorboard_trace_handler(str(folder))):
        phase_times(experiment, experiment.step(approach, loss, targets))


def write_chart(path: Path, rows: list[Row], setting: str, with_published: bool) -> None:
    """Draw a panel for each phase, a bar for each row, and if they compare the article's figures in gray.

    setting: the machine and the size of the run, for the title.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.2 * len(PHASES), 1.5 + 0.5 * len(rows)), layout="constrained")
    panels = figure.subplots(1, len(PHASES), sharex=True, sharey=True)
    for phase, panel in enumerate(panels):
        for color, offset, shown in (
            ("tab:blue", -0.2, [phases for _, phases, _ in rows]),
            ("lightgray", 0.2, [approach.published for approach, _, _ in rows if with_published]),
        ):
            bars = [(place + offset, each[phase]) for place, each in enumerate(shown) if len(each) > phase]
            drawn = panel.barh([place for place, _ in bars], [value for _, value in bars], 0.37, color=color)
            panel.bar_label(drawn, fmt=number, padding=3, fontsize=8)
        panel.set(title=PHASES[phase], xlabel="ms", xscale="log")
        panel.spines[["top", "right"]].set_visible(False)
        panel.margins(x=0.3)
    panels[0].set_yticks(range(len(rows)), [approach.name for approach, _, _ in rows])
    panels[0].invert_yaxis()
    gray = f"; gray: the article's figures ({PUBLISHED_ON})" if with_published else ""
    figure.suptitle(f"A training step by phases, {setting}{gray}")
    figure.savefig(path, dpi=110)
