"""The sizes, dtypes and directions that are measured, in the order in which they run."""

from dataclasses import dataclass
from typing import Literal

import torch

Kind = Literal["loss", "weighted loss", "unpadded loss", "transfer", "nms", "pairwise"]
Direction = Literal["forward", "forward+backward"]

FORWARD: Direction = "forward"
BOTH: Direction = "forward+backward"


@dataclass(frozen=True)
class OpsCase:
    """One table of the output.

    group: the name for `--only`.
    batch, slots: B and M of a loss, images and boxes an image of NMS, N and M of pairwise GIoU.
    fill: share of valid slots; None is floor(|N(0, 3)|) boxes per sample.
    threads: of the CPU; 0 leaves torch's choice.
    cold: whether device time is also taken with inputs that are not in the cache.
    """

    group: str
    kind: Kind
    direction: Direction
    device: str
    batch: int
    slots: int
    fill: float | None = None
    pred_dtype: torch.dtype = torch.bfloat16
    target_dtype: torch.dtype = torch.uint8
    threads: int = 0
    cold: bool = False

    @property
    def title(self) -> str:
        """Return a title that no other case has."""
        shape = f"[{self.batch}, {self.slots}]"
        threads = f", {self.threads} thread{'s' if self.threads > 1 else ''}" if self.threads else ""
        place = f"{self.device.upper()}{threads}"
        if self.kind in ("nms", "pairwise"):
            return f"{self.kind} {shape}, {place}"
        fill = "|N(0,3)| boxes a sample" if self.fill is None else f"fill {self.fill:.0%}"
        dtypes = f"{_short(self.pred_dtype)}/{_short(self.target_dtype)}"
        return f"{self.kind}, {self.direction}, {shape}, {fill}, {dtypes}, {place}"


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


# A batch of the article.
HEADLINE_BATCH, HEADLINE_SLOTS = 1024, 256
# The box loss of a training step: 256 images of up to 160 targets, 7 cells a target, a weight for each cell.
TRAINING_BATCH, TRAINING_SLOTS, TRAINING_FILL = 256, 160 * 7, 0.1
CPU_BOXES = 256
CPU_NMS_BOXES = 1000

SWEEP_BATCHES = (1, 16, 128, 4096)
SWEEP_SLOTS = (16, 64, 1024)
COLD_SLOTS = 1 << 20  # from here on it is the memory, not the launch, that limits a case
SWEEP_FILLS = (0.01, 0.1, 0.5, 1.0)


def all_cases(device: str, quick: bool, threads: int) -> list[OpsCase]:
    """Return the cases of one run. threads: of the CPU; the group "cpu" takes one."""
    here = threads if device == "cpu" else 0
    cold = device == "cuda"
    headline = (HEADLINE_BATCH, HEADLINE_SLOTS)
    cases = [
        OpsCase("headline", "loss", direction, device, *headline, threads=here, cold=cold)
        for direction in (FORWARD, BOTH)
    ]
    directions = (FORWARD,) if quick else (FORWARD, BOTH)
    training = (TRAINING_BATCH, TRAINING_SLOTS, TRAINING_FILL, torch.float32, torch.float32)
    cases += [
        OpsCase("weighted", "weighted loss", direction, device, *training, threads=here, cold=cold)
        for direction in directions
    ]
    cases += [
        OpsCase("transfer", "transfer", direction, device, *headline, threads=here)
        for direction in directions
    ]
    if device == "cuda":
        cases += [
            OpsCase("nms", "nms", FORWARD, device, *shape) for shape in ((128, 1024), (256, 256), (1, 1024))
        ]
    cases += _cpu_figures()
    pairwise = ((1024, 1024),) if quick else ((1024, 1024), (300, 100), (8192, 4096))
    cases += [
        OpsCase("pairwise", "pairwise", FORWARD, device, *shape, threads=here, cold=cold)
        for shape in pairwise
    ]
    return cases if quick else cases + _sweep(device, here, cold)


def _cpu_figures() -> list[OpsCase]:
    return [
        OpsCase(
            "cpu", "unpadded loss", BOTH, "cpu", 1, CPU_BOXES, 1.0, torch.float32, torch.float32, threads=1
        ),
        OpsCase("cpu", "nms", FORWARD, "cpu", 1, CPU_NMS_BOXES, threads=1),
    ]


def _sweep(device: str, threads: int, cold: bool) -> list[OpsCase]:
    """Return cases that differ from the headline case in one size, and the largest of all."""
    points: list[tuple[int, int, float | None]] = []
    points += [(batch, HEADLINE_SLOTS, None) for batch in SWEEP_BATCHES]
    points += [(HEADLINE_BATCH, slots, None) for slots in SWEEP_SLOTS]
    points += [(HEADLINE_BATCH, HEADLINE_SLOTS, fill) for fill in SWEEP_FILLS]
    if device == "cuda":
        points.append((SWEEP_BATCHES[-1], SWEEP_SLOTS[-1], 1.0))
    return [
        OpsCase(
            *("sizes", "loss", direction, device, batch, slots, fill),
            threads=threads,
            cold=cold and batch * slots >= COLD_SLOTS,
        )
        for batch, slots, fill in points
        for direction in (FORWARD, BOTH)
    ]
