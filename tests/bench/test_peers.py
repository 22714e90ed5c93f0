"""Every peer computes what Lensbox computes; the check catches one that does not."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from lensbox.bench.check import WrongAnswerError, check_loss, check_nms, check_pairwise
from lensbox.bench.inputs import LossBatch, NmsBatch, make_loss_batch, make_nms_batch, make_pairwise_batch
from lensbox.bench.peers import registry
from lensbox.bench.peers.eager import padded_loss
from lensbox.bench.peers.peer import NmsPeer, Peer, UnavailableError


def without_compiled(peers: Sequence[Peer[Any]]) -> list[Peer[Any]]:
    """torch.compile takes seconds for each shape, and compiles the eager functions, which are tested."""
    return [peer for peer in peers if not peer.slow_to_start]


LOSS_PEERS = [
    pytest.param(peer, transfer, id=f"{peer.name}{' with copy' if transfer else ''}")
    for transfer, peers in ((False, registry.LOSS_PEERS), (True, registry.TRANSFER_PEERS))
    for peer in without_compiled(peers)
    if peer.name not in registry.FLOORS
]
DTYPES = [(torch.bfloat16, torch.uint8), (torch.float32, torch.float32)]


def load(peer: Peer[Any], device: torch.device) -> Any:
    try:
        return peer.load(device)
    except UnavailableError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(("peer", "transfer"), LOSS_PEERS)
@pytest.mark.parametrize("dtypes", DTYPES, ids=["bfloat16-uint8", "float32"])
@pytest.mark.parametrize("shape", [(1, 1, 1.0), (7, 13, 0.4), (64, 32, None), (3, 5, 0.0)], ids=str)
def test_loss_and_gradient(
    peer: Peer[Any],
    transfer: bool,
    dtypes: tuple[torch.dtype, torch.dtype],
    shape: tuple[int, int, float | None],
    device: torch.device,
) -> None:
    function = load(peer, device)
    batch = make_loss_batch(*shape, *dtypes, device)
    if batch.valid == 0 and peer.name in ("concatenation", registry.PER_SAMPLE):
        pytest.skip("without a box its loss is a constant, and the case is never timed")
    check_loss(function, batch, with_gradient=not peer.no_backward)


@pytest.mark.parametrize("peer", without_compiled(registry.WEIGHTED_LOSS_PEERS), ids=lambda peer: peer.name)
@pytest.mark.parametrize("fill", [0.0, 0.4, 1.0])
def test_weighted_loss_and_gradient(peer: Peer[Any], fill: float, device: torch.device) -> None:
    batch = make_loss_batch(7, 65, fill, *DTYPES[1], device)
    check_loss(load(peer, device), batch, with_gradient=True, weighted=True)


@pytest.mark.parametrize("peer", without_compiled(registry.UNPADDED_LOSS_PEERS), ids=lambda peer: peer.name)
def test_unpadded_loss_and_gradient(peer: Peer[Any], device: torch.device) -> None:
    check_loss(load(peer, device), make_loss_batch(1, 64, 1.0, *DTYPES[1], device), with_gradient=True)


@pytest.mark.parametrize("peer", registry.NMS_PEERS, ids=lambda peer: peer.name)
def test_nms(peer: NmsPeer, device: torch.device) -> None:
    images = 1 if peer.name == registry.TORCHVISION_NMS else 4
    check_nms(peer, load(peer, device), make_nms_batch(images, 200, device))


@pytest.mark.parametrize("peer", without_compiled(registry.PAIRWISE_PEERS), ids=lambda peer: peer.name)
def test_pairwise(peer: Peer[Any], device: torch.device) -> None:
    check_pairwise(load(peer, device), make_pairwise_batch(37, 11, device))


@pytest.mark.gpu
# A hint of torch.compile about float32 matrix products, of which there are none.
@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores:UserWarning")
@pytest.mark.parametrize(
    "peer", [p for p in registry.LOSS_PEERS if p.slow_to_start], ids=lambda peer: peer.name
)
def test_compiled_loss(peer: Peer[Any]) -> None:
    device = torch.device("cuda")
    check_loss(load(peer, device), make_loss_batch(16, 32, None, *DTYPES[0], device), with_gradient=True)


def small_batch() -> LossBatch:
    return make_loss_batch(4, 8, 0.5, torch.float32, torch.uint8, torch.device("cpu"))


def test_a_wrong_value_is_caught() -> None:
    with pytest.raises(WrongAnswerError, match="the loss is off by"):
        check_loss(lambda batch, pred: padded_loss(pred, batch.target) + 0.01, small_batch(), False)


def test_a_wrong_gradient_is_caught() -> None:
    def loss(batch: LossBatch, pred: Tensor) -> Tensor:
        right = padded_loss(pred, batch.target)
        return right.detach() + 1.01 * (right - right.detach())

    with pytest.raises(WrongAnswerError, match="the gradient is off by"):
        check_loss(loss, small_batch(), True)


def test_a_loss_without_its_weights_is_caught() -> None:
    with pytest.raises(WrongAnswerError, match="the loss is off by"):
        check_loss(lambda batch, pred: padded_loss(pred, batch.target), small_batch(), False, weighted=True)


def test_nan_is_caught() -> None:
    with pytest.raises(WrongAnswerError, match="the loss is off by nan"):
        check_loss(lambda batch, pred: padded_loss(pred, batch.target) * float("nan"), small_batch(), False)


def test_a_wrong_shape_is_caught() -> None:
    with pytest.raises(WrongAnswerError, match=r"the loss has shape \[1\]"):
        check_loss(lambda batch, pred: padded_loss(pred, batch.target)[None], small_batch(), False)


def test_a_wrongly_kept_box_is_caught() -> None:
    def kept(batch: NmsBatch, _: object) -> Tensor:
        return torch.ones_like(batch.scores, dtype=torch.bool)

    peer = NmsPeer("keeps all", lambda _: lambda batch: None, kept=kept)
    with pytest.raises(WrongAnswerError, match="boxes are kept or dropped wrongly"):
        check_nms(peer, lambda batch: None, make_nms_batch(1, 100, torch.device("cpu")))


@pytest.mark.parametrize("name", ["article's kernel", "triton", "empty kernel"])
def test_cuda_peers_say_why_they_cannot_run_on_a_cpu(name: str) -> None:
    (peer,) = [peer for peer in registry.LOSS_PEERS if peer.name == name]
    with pytest.raises(UnavailableError, match=r"CUDA kernel|compiles for GPUs"):
        peer.load(torch.device("cpu"))


def test_lensbox_comes_first() -> None:
    lists = (
        registry.LOSS_PEERS,
        registry.WEIGHTED_LOSS_PEERS,
        registry.UNPADDED_LOSS_PEERS,
        registry.TRANSFER_PEERS,
    )
    assert all(peers[0].name == registry.LENSBOX for peers in lists)
    assert registry.NMS_PEERS[0].name == registry.PAIRWISE_PEERS[0].name == registry.LENSBOX


def test_swept_peers_exist() -> None:
    assert set(registry.SWEPT) <= {peer.name for peer in registry.LOSS_PEERS}
