"""Turns a case of `cases.py` into one for the runner: inputs, peers, checks and calls."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from lensbox.bench.ops import peers
from lensbox.bench.ops.cases import BOTH, FORWARD, OpsCase
from lensbox.bench.ops.check import check_loss, check_nms, check_pairwise
from lensbox.bench.ops.inputs import (
    LossBatch,
    NmsBatch,
    PairwiseBatch,
    make_loss_batch,
    make_nms_batch,
    make_pairwise_batch,
)
from lensbox.bench.ops.peers import Function, Peer, loss_and_gradient
from lensbox.bench.runner import Case, MakeRun, Measure, UnavailableError, Way, always
from lensbox.bench.timing import Run


def make_case(case: OpsCase) -> Case:
    """Make the inputs of a case and the ways to compute it."""
    device = torch.device(case.device)
    if case.kind == "nms":
        ways = _nms_ways(case, make_nms_batch(case.batch, case.slots, device))
    elif case.kind == "pairwise":
        ways = _pairwise_ways(case, make_pairwise_batch(case.batch, case.slots, device))
    else:
        dtypes = (case.pred_dtype, case.target_dtype)
        ways = _loss_ways(case, make_loss_batch(case.batch, case.slots, case.fill, *dtypes, device))
    return Case(case.title, ways, case.device, case.threads)


def loss_bytes(batch: LossBatch, with_gradient: bool, weighted: bool, peer: str) -> int:
    """Return the bytes that a loss must read and write.

    Forward: every target, padding included, the predictions of valid slots, and the loss. Backward: the
    inputs once more, and the gradient of every slot. With weights: every weight, and only the targets of
    valid slots. Packed targets have offsets and no padding. Floors move nothing.
    """
    if peer in peers.FLOORS:
        return 0
    pred_box = 4 * batch.pred.element_size()
    slots = batch.pred.numel() // 4
    target_box = 4 * batch.target.element_size()
    if weighted:
        targets = batch.valid * target_box + slots * batch.weight.element_size()
    elif peer == peers.LENSBOX_JAGGED:
        targets = batch.valid * target_box + 8 * (len(batch.counts) + 1)
    else:
        targets = slots * target_box
    inputs = targets + batch.valid * pred_box
    loss = 4
    return 2 * inputs + slots * pred_box + loss if with_gradient else inputs + loss


def _way(
    case: OpsCase,
    peer: Peer,
    measures: Sequence[Measure],
    prepare: Callable[[Function], MakeRun],
    useful: int = 0,
) -> Way:
    """Make a way of a peer. On the CPU only the call is measured.

    prepare: checks the peer's function and returns the call.
    """

    def load() -> MakeRun:
        if case.direction == BOTH and peer.no_backward:
            raise UnavailableError(peer.no_backward)
        return prepare(peer.load(torch.device(case.device)))

    return Way(
        name=peer.name,
        prepare=load,
        measures=measures if case.device == "cuda" else ("call",),
        useful_bytes=useful,
        own=peer.name in peers.OWN,
        no_graph=peer.no_graph,
        no_copies=peer.no_copies,
        slow_to_start=peer.slow_to_start,
    )


def _loss_ways(case: OpsCase, batch: LossBatch) -> list[Way]:
    with_gradient, weighted = case.direction == BOTH, case.kind == "weighted loss"
    transfer = case.kind == "transfer"
    measures: Sequence[Measure] = ("call", "complete") if transfer else _with_cold(case)

    def prepare(name: str, function: Function) -> MakeRun:
        if name not in peers.FLOORS:
            check_loss(function, batch, with_gradient, weighted)
        return partial(_loss_run, function, batch, with_gradient)

    ways = []
    for peer in _loss_peers(case):
        useful = 0 if transfer else loss_bytes(batch, with_gradient, weighted, peer.name)
        ways.append(_way(case, peer, measures, partial(prepare, peer.name), useful))
    return ways


def _loss_run(function: Function, batch: LossBatch, with_gradient: bool, copies: int) -> Run:
    batches = _copies(batch, copies)
    if not with_gradient:
        return lambda index: function(batches[index % copies], batches[index % copies].pred)
    leaves = [batch.pred.clone().requires_grad_() for batch in batches]
    return lambda index: loss_and_gradient(function, batches[index % copies], leaves[index % copies])


def _loss_peers(case: OpsCase) -> list[Peer]:
    found = {
        "transfer": peers.TRANSFER_PEERS,
        "weighted loss": peers.WEIGHTED_LOSS_PEERS,
        "unpadded loss": peers.UNPADDED_LOSS_PEERS,
    }.get(case.kind, [peer for peer in peers.LOSS_PEERS if peer.swept or case.group != "sizes"])
    if case.direction == FORWARD:
        return [peer for peer in found if not peer.gives_gradient]
    return [peer for peer in found if peer.name not in peers.FLOORS]


def _nms_ways(case: OpsCase, batch: NmsBatch) -> list[Way]:
    other = peers.TORCHVISION_BATCHED_NMS if case.batch == 1 else peers.TORCHVISION_NMS

    def prepare(peer: Peer, function: Function) -> MakeRun:
        check_nms(peer, function, batch)
        return always(partial(function, batch))

    chosen = [peer for peer in peers.NMS_PEERS if peer.name != other]
    return [_way(case, peer, ("call", "complete", "graph"), partial(prepare, peer)) for peer in chosen]


def _pairwise_ways(case: OpsCase, batch: PairwiseBatch) -> list[Way]:
    def prepare(function: Function) -> MakeRun:
        check_pairwise(function, batch)

        def make_run(copies: int) -> Run:
            batches = _copies(batch, copies)
            return lambda index: function(batches[index % copies])

        return make_run

    useful = 4 * (batch.boxes1.numel() + batch.boxes2.numel() + len(batch.boxes1) * len(batch.boxes2))
    return [_way(case, peer, _with_cold(case), prepare, useful) for peer in peers.PAIRWISE_PEERS]


def _copies(batch: Any, copies: int) -> list[Any]:
    return [batch] + [batch.clone() for _ in range(copies - 1)]


def _with_cold(case: OpsCase) -> Sequence[Measure]:
    return ("call", "graph", "graph cold") if case.cold else ("call", "graph")
