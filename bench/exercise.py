"""The article's open exercise: what skipping padding gains as the work of a slot grows.

Four variables: how often the GIoU of a slot is computed (n), the share of valid slots (fill), whether each
warp has slots of both kinds ("mixed": valid slots anywhere) or of one ("uniform": valid slots fill whole
warps), and whether the kernel skips padding or computes it and clears the result.
csrc/exercise_kernel.cu holds the kernels.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from lensbox.bench.check import WrongAnswerError
from lensbox.bench.extension import load_extension
from lensbox.bench.inputs import make_loss_batch
from lensbox.bench.table import number
from lensbox.bench.timing import Series, Summary, graph_sampler, interleave, summarize
from lensbox.ops.reference import giou_reference

Warps = Literal["mixed", "uniform"]

WARP = 32
# 96 MiB of boxes: more than the cache of an H200, which holds the 32 MiB of targets alone.
BATCH, SLOTS = 8192, 1024
REPEATS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
FILLS = (0.01, 0.1, 0.5, 1.0)
QUICK_REPEATS, QUICK_FILLS = (1, 16, 256), (0.01, 0.5)
ITERATIONS, ROUNDS = 5, 7

HEADER = [
    "fill",
    "warps",
    "n",
    "branch-free, µs",
    "skipping, µs",
    "gain",
    "gain if arithmetic were all",
]


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
    """Gain in the limit of endless arithmetic, where a kernel takes as long as it has warps with work to do.

    Uniform: a share `fill` of all warps. Mixed: a warp is idle only if all 32 slots are padding, so a share
    1 - (1 - fill)^32 works.
    """
    working = fill if warps == "uniform" else 1 - (1 - fill) ** WARP
    return 1 / working


def run_exercise(quick: bool) -> list[Point]:
    """Measures on the GPU.

    Raises:
        UnavailableError: the kernels could not be built.
        WrongAnswerError: a kernel disagrees with the float64 reference.
    """
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


def valid_slots(slots: int, fill: float, warps: Warps, seed: int = 0) -> Tensor:
    """Which slots hold a box: bool `[slots]`, true for a share `fill`, drawn for each slot or each warp."""
    generator = torch.Generator().manual_seed(seed)
    if warps == "mixed":
        return torch.rand(slots, generator=generator) < fill
    return (torch.rand(slots // WARP, generator=generator) < fill).repeat_interleave(WARP)


def point_lines(points: Sequence[Point]) -> list[list[str]]:
    """A line for each point, beneath HEADER."""
    return [
        [
            f"{point.fill:.0%}",
            point.warps,
            str(point.repeats),
            number(point.branch_free.median),
            number(point.skipping.median),
            number(point.gain),
            number(predicted_gain(point.fill, point.warps)),
        ]
        for point in points
    ]


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
