"""How each kind of case is set up: its peers, its inputs, its check and the calls to be timed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from lensbox.bench.cases import BOTH, FORWARD, Case
from lensbox.bench.check import check_loss, check_nms, check_pairwise
from lensbox.bench.inputs import (
    LossBatch,
    NmsBatch,
    PairwiseBatch,
    make_loss_batch,
    make_nms_batch,
    make_pairwise_batch,
)
from lensbox.bench.peers import registry
from lensbox.bench.peers.peer import Loss, Nms, NmsPeer, Pairwise, Peer, loss_and_gradient
from lensbox.bench.results import Measure
from lensbox.bench.timing import Run


@dataclass(frozen=True)
class Workload:
    """A case made ready.

    useful_bytes: the least that the task must move, by the name of a peer; 0 where it is not counted.
    measures: what is timed on a GPU; on the CPU it is always the call.
    check: raises WrongAnswerError.
    make_run: the calls to be timed, going round so many copies of the inputs.
    """

    peers: Sequence[Peer[Any]]
    useful_bytes: Callable[[str], int]
    measures: Sequence[Measure]
    check: Callable[[Peer[Any], Any], None]
    make_run: Callable[[Any, int], Run]


def make_workload(case: Case) -> Workload:
    device = torch.device(case.device)
    if case.kind == "nms":
        return _nms(case, make_nms_batch(case.batch, case.slots, device))
    if case.kind == "pairwise":
        return _pairwise(case, make_pairwise_batch(case.batch, case.slots, device))
    return _loss(
        case,
        make_loss_batch(case.batch, case.slots, case.fill, case.pred_dtype, case.target_dtype, device),
    )


def _loss(case: Case, batch: LossBatch) -> Workload:
    with_gradient = case.direction == BOTH
    weighted = case.kind == "weighted loss"

    def make_run(function: Loss, sets: int) -> Run:
        batches = [batch] + [batch.clone() for _ in range(sets - 1)]
        if not with_gradient:
            return lambda index: function(batches[index % sets], batches[index % sets].pred)
        leaves = [batch.pred.clone().requires_grad_() for batch in batches]

        return lambda index: loss_and_gradient(function, batches[index % sets], leaves[index % sets])

    def check(peer: Peer[Loss], function: Loss) -> None:
        if peer.name not in registry.FLOORS:
            check_loss(function, batch, with_gradient, weighted)

    return Workload(
        _loss_peers(case),
        (lambda peer: loss_bytes(batch, with_gradient, weighted, peer))
        if case.kind != "transfer"
        else _uncounted,
        ("call", "complete") if case.kind == "transfer" else _with_cold(case, ("call", "graph")),
        check,
        make_run,
    )


def loss_bytes(batch: LossBatch, with_gradient: bool, weighted: bool, peer: str) -> int:
    """Forward: every target, padding too, the predictions of valid slots, and the loss. Backward: the inputs
    once more, and the gradient of every slot. With weights, every weight but only the targets of valid slots.
    Packed targets have no padding but offsets; floors do nothing.
    """
    if peer in registry.FLOORS:
        return 0
    pred_box = 4 * batch.pred.element_size()
    slots = batch.pred.numel() // 4
    target_box = 4 * batch.target.element_size()
    if weighted:
        targets = batch.valid * target_box + slots * batch.weight.element_size()
    elif peer == registry.LENSBOX_JAGGED:
        targets = batch.valid * target_box + 8 * (len(batch.counts) + 1)
    else:
        targets = slots * target_box
    inputs = targets + batch.valid * pred_box
    loss = 4
    return 2 * inputs + slots * pred_box + loss if with_gradient else inputs + loss


def _uncounted(_: str) -> int:
    return 0


def _loss_peers(case: Case) -> Sequence[Peer[Loss]]:
    peers = _all_loss_peers(case)
    return [peer for peer in peers if not peer.gives_gradient] if case.direction == FORWARD else peers


def _all_loss_peers(case: Case) -> Sequence[Peer[Loss]]:
    if case.kind == "transfer":
        return registry.TRANSFER_PEERS
    if case.kind == "weighted loss":
        return registry.WEIGHTED_LOSS_PEERS
    if case.kind == "unpadded loss":
        return registry.UNPADDED_LOSS_PEERS
    if case.group == "sizes":
        return [peer for peer in registry.LOSS_PEERS if peer.name in registry.SWEPT]
    if case.direction == FORWARD:
        return registry.LOSS_PEERS
    return [peer for peer in registry.LOSS_PEERS if peer.name not in registry.FLOORS]


def _nms(case: Case, batch: NmsBatch) -> Workload:
    alone = case.batch == 1
    left_out = registry.TORCHVISION_BATCHED_NMS if alone else registry.TORCHVISION_NMS

    def make_run(function: Nms, _: int) -> Run:
        return lambda index: function(batch)

    def check(peer: Peer[Nms], function: Nms) -> None:
        assert isinstance(peer, NmsPeer)
        check_nms(peer, function, batch)

    return Workload(
        [peer for peer in registry.NMS_PEERS if peer.name != left_out],
        _uncounted,
        ("call", "complete", "graph"),
        check,
        make_run,
    )


def _pairwise(case: Case, batch: PairwiseBatch) -> Workload:
    def make_run(function: Pairwise, sets: int) -> Run:
        batches = [batch] + [batch.clone() for _ in range(sets - 1)]
        return lambda index: function(batches[index % sets])

    def check(_: Peer[Pairwise], function: Pairwise) -> None:
        check_pairwise(function, batch)

    useful = 4 * (batch.boxes1.numel() + batch.boxes2.numel() + len(batch.boxes1) * len(batch.boxes2))
    return Workload(
        registry.PAIRWISE_PEERS,
        lambda _: useful,
        _with_cold(case, ("call", "graph")),
        check,
        make_run,
    )


def _with_cold(case: Case, measures: Sequence[Measure]) -> Sequence[Measure]:
    return (*measures, "graph cold") if case.cold else measures
