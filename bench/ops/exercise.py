"""The article's open exercise: the gain of skipping padding as the work of a slot grows.

Variables:
    n: number of GIoU computations per slot.
    fill: share of valid slots.
    warps: "mixed" if valid slots lie anywhere, "uniform" if they fill whole warps.
    kernel: one skips padding; the other computes padding and clears the result (csrc/exercise_kernel.cu).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from lensbox.bench.ops.extension import load_extension
from lensbox.bench.ops.inputs import make_loss_batch
from lensbox.bench.ops.reference import giou_reference
from lensbox.bench.report import Table, number
from lensbox.bench.runner import UnavailableError, WrongAnswerError
from lensbox.bench.timing import Series, Summary, graph_sampler, interleave, summarize

Warps = Literal["mixed", "uniform"]

WARP = 32
# 96 MiB of boxes: more than the cache of an H200, which holds the 32 MiB of targets alone.
BATCH, SLOTS = 8192, 1024
REPEATS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
FILLS = (0.01, 0.1, 0.5, 1.0)
QUICK_REPEATS, QUICK_FILLS = (1, 16, 256), (0.01, 0.5)
ITERATIONS, ROUNDS = 5, 7


@dataclass(frozen=True)
class Point:
    """Device time of both kernels, in microseconds."""

    fill: float
    warps: Warps
    repeats: int
    branch_free: Summary
    skipping: Summary

    @property
    def gain(self) -> float:
        return self.branch_free.median / self.skipping.median


def predicted_gain(fill: float, warps: Warps) -> float:
    """Return the gain in the limit of endless arithmetic: all warps over those with work.

    Uniform: a share `fill` of the warps works. Mixed: a warp is idle only if its 32 slots are padding, so a
    share 1 - (1 - fill)^32 works.
    """
    working = fill if warps == "uniform" else 1 - (1 - fill) ** WARP
    return 1 / working


def run_exercise(device_type: str, quick: bool) -> list[Point]:
    """Measure on the GPU. Raises UnavailableError without a GPU or if the build fails, WrongAnswerError."""
    if device_type != "cuda":
        raise UnavailableError("it runs on a GPU")
    device = torch.device("cuda")
    load_extension(device)
    full = make_loss_batch(BATCH, SLOTS, 1.0, torch.bfloat16, torch.uint8, device)
    # In slices: in float64 the whole would take gigabytes.
    pieces = zip(torch.split(full.pred, 1024), torch.split(full.target, 1024), strict=True)
    giou = torch.cat([giou_reference(pred, target) for pred, target in pieces]).flatten()
    points = []
    for fill in QUICK_FILLS if quick else FILLS:
        for warps in ("mixed", "uniform"):
            valid = valid_slots(giou.numel(), fill, warps).to(device)
            target = torch.where(valid.view(BATCH, SLOTS, 1), full.target, 0)
            expected = (giou * valid).view(-1, WARP).sum(1)
            for repeats in QUICK_REPEATS if quick else REPEATS:
                points.append(_measure(full.pred, target, expected, fill, warps, repeats))
    return points


def valid_slots(slots: int, fill: float, warps: Warps) -> Tensor:
    """Return which slots hold a box: bool `[slots]`, true for a share `fill`."""
    generator = torch.Generator().manual_seed(0)
    if warps == "mixed":
        return torch.rand(slots, generator=generator) < fill
    return (torch.rand(slots // WARP, generator=generator) < fill).repeat_interleave(WARP)


def exercise_table(points: Sequence[Point]) -> Table:
    """Return the report's table, a line per point."""
    header = ["fill", "warps", "n", "branch-free, µs", "skipping, µs", "gain", "gain if arithmetic were all"]
    lines = []
    for point in points:
        times = (point.branch_free.median, point.skipping.median)
        gains = (point.gain, predicted_gain(point.fill, point.warps))
        figures = [number(value) for value in (*times, *gains)]
        lines.append([f"{point.fill:.0%}", point.warps, str(point.repeats), *figures])
    return Table("Skipping padding as the work of a slot grows", header, lines)


def _measure(
    pred: Tensor, target: Tensor, expected: Tensor, fill: float, warps: Warps, repeats: int
) -> Point:
    series = {}
    for name, skip in (("branch-free", False), ("skipping", True)):

        def run(_: int, skip: bool = skip) -> Tensor:
            out: Tensor = torch.ops.lensbox_bench.exercise(pred, target, repeats, skip)
            return out

        error = (run(0).double() / repeats - expected).norm() / expected.norm()
        if not float(error) <= 1e-4:
            raise WrongAnswerError(f"exercise, {name}, n = {repeats}: off by {float(error):.2g} of its size")
        series[name] = Series(graph_sampler(run, ITERATIONS), ROUNDS)
    samples = interleave(series)
    return Point(fill, warps, repeats, summarize(samples["branch-free"]), summarize(samples["skipping"]))
