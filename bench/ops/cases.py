"""The groups of `lensbox bench ops`: sizes, dtypes and directions, in the order in which they run."""

import gc
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch

from lensbox.bench.measure import Case, UnavailableError, Way, describe_machine, run_case
from lensbox.bench.ops.inputs import LossBatch, make_loss_batch, make_nms_batch
from lensbox.bench.ops.letterbox import letterbox_cases
from lensbox.bench.ops.peers import (
    BOTH,
    FORWARD,
    LOSS_PEERS,
    NMS_PEERS,
    WEIGHTED_LOSS_PEERS,
    Function,
    Peer,
    loss_and_gradient,
)
from lensbox.bench.ops.reference import check_loss, check_nms
from lensbox.cli.timing import Call
from lensbox.common.machine import keep_freed_memory

Cases = Callable[[torch.device, bool], Iterator[Case]]  # of a device; whether the run is a quick one

BATCH, SLOTS = 1024, 256  # a batch of the article
# The box loss of a training step: 256 images of up to 160 targets, 7 cells a target, a weight for each cell.
TRAINING_BATCH, TRAINING_SLOTS, TRAINING_FILL = 256, 160 * 7, 0.1
NMS_SHAPES = {"cpu": ((1, 1000),), "cuda": ((128, 1024), (256, 256), (1, 1024))}
# Batch, slots and share of valid slots; None is floor(|N(0, 3)|) boxes per sample.
SIZES: list[tuple[int, int, float | None]] = [
    *((batch, SLOTS, None) for batch in (1, 16, 128, 4096)),
    *((BATCH, slots, None) for slots in (16, 64, 1024)),
    *((BATCH, SLOTS, fill) for fill in (0.01, 0.1, 0.5, 1.0)),
    (4096, 1024, 1.0),
]
_SECONDS, _QUICK_SECONDS = 2.0, 0.5  # for all samples of a way


def run_ops(
    device: torch.device, quick: bool, threads: int, groups: Sequence[str], say: Callable[[str], None]
) -> bool:
    """Run groups of cases, all by default. Print each table with `say` when it is complete.

    Return whether every answer of Lensbox was right.
    """
    keep_freed_memory()
    torch.set_num_threads(threads)
    say(describe_machine(device.type, ("torchvision", "triton", "pillow", "opencv-python-headless")))
    is_good = True
    for group in groups or GROUPS:
        for case in GROUPS[group](device, quick):
            result = run_case(case, threads, _QUICK_SECONDS if quick else _SECONDS)
            say(result.table().markdown())
            is_good = is_good and not result.own_defect
            # Captured graphs and the guards of compiled code would slow the next case down.
            torch.compiler.reset()
            gc.collect()
            if device.type == "cuda":
                torch.cuda.empty_cache()
    return is_good


def headline_cases(device: torch.device, quick: bool) -> Iterator[Case]:
    """Yield the loss of the article's batch, and of 256 boxes without padding."""
    batch = make_loss_batch(BATCH, SLOTS, None, torch.bfloat16, torch.uint8, device)
    yield from _loss_cases("loss", batch, "|N(0,3)| boxes a sample", LOSS_PEERS, quick)
    boxes = make_loss_batch(1, 256, 1.0, torch.float32, torch.float32, device)
    peers = [peer for peer in LOSS_PEERS if peer.name in ("lensbox", "eager", "torch.compile", "torchvision")]
    yield from _loss_cases("loss", boxes, "no padding", peers, quick)


def weighted_cases(device: torch.device, quick: bool) -> Iterator[Case]:
    """Yield the loss with weights, as `lensbox train` calls it."""
    dtypes = torch.float32, torch.float32
    batch = make_loss_batch(TRAINING_BATCH, TRAINING_SLOTS, TRAINING_FILL, *dtypes, device)
    yield from _loss_cases("weighted loss", batch, "fill 10%", WEIGHTED_LOSS_PEERS, quick)


def size_cases(device: torch.device, quick: bool) -> Iterator[Case]:
    """Yield losses that differ from the article's batch in one size, and the largest one."""
    peers = [peer for peer in LOSS_PEERS if peer.every_size]
    for batch_size, slots, fill in () if quick else SIZES:
        batch = make_loss_batch(batch_size, slots, fill, torch.bfloat16, torch.uint8, device)
        what = "|N(0,3)| boxes a sample" if fill is None else f"fill {fill:.0%}"
        yield from _loss_cases("loss", batch, what, peers, quick)


def nms_cases(device: torch.device, quick: bool) -> Iterator[Case]:
    """Yield NMS of batches of images. All scores pass, and every box fits into the output."""

    def prepare(function: Function) -> Call:
        check_nms(function, batch)
        return partial(function, batch)

    for images, boxes in NMS_SHAPES[device.type]:
        batch = make_nms_batch(images, boxes, device)
        yield _case(f"NMS, [{images}, {boxes}]", device, NMS_PEERS, quick, prepare)


GROUPS: dict[str, Cases] = {
    "headline": headline_cases,
    "weighted": weighted_cases,
    "nms": nms_cases,
    "letterbox": letterbox_cases,
    "sizes": size_cases,
}


def _loss_cases(kind: str, batch: LossBatch, fill: str, peers: Sequence[Peer], quick: bool) -> Iterator[Case]:
    """Yield the forward pass, and the forward pass with the gradient."""
    shape = list(batch.pred.shape[:2])
    dtypes = "/".join(str(boxes.dtype).removeprefix("torch.") for boxes in (batch.pred, batch.target))
    for direction in (FORWARD, BOTH):
        prepare = partial(_prepare_loss, batch, direction == BOTH, peers is WEIGHTED_LOSS_PEERS)
        found = [peer for peer in peers if direction in peer.directions]
        title = f"{kind}, {direction}, {shape}, {fill}, {dtypes}"
        yield _case(title, batch.pred.device, found, quick, prepare)


def _prepare_loss(batch: LossBatch, with_gradient: bool, weighted: bool, function: Function) -> Call:
    check_loss(function, batch, with_gradient, weighted)
    if not with_gradient:
        return partial(function, batch, batch.pred)
    return partial(loss_and_gradient, function, batch, batch.pred.clone().requires_grad_())


def _case(
    title: str, device: torch.device, peers: Sequence[Peer], quick: bool, prepare: Callable[[Function], Call]
) -> Case:
    def load(peer: Peer) -> Call:
        if peer.compiles and quick:
            raise UnavailableError("left out by --quick: it compiles")
        return prepare(peer.load(device))

    ways = [Way(peer.name, partial(load, peer), peer.own, peer.in_graph) for peer in peers]
    return Case(f"{title}, {device.type.upper()}", ways, device.type)
