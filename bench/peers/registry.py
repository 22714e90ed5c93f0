"""The peers of each kind of case, in the order of the tables. The first is Lensbox's own."""

from lensbox.bench.peers import (
    article_kernel,
    compiled,
    concatenation,
    eager,
    empty,
    lensbox_ops,
    per_sample,
    torchvision_ops,
    triton_loss,
)
from lensbox.bench.peers.peer import Loss, NmsPeer, Pairwise, Peer

LENSBOX = "lensbox"
LENSBOX_JAGGED = "lensbox jagged"
LENSBOX_WITH_GRADIENT = "lensbox, one op for both"
LENSBOX_ANY_WEIGHT = "lensbox, int32 weights"
# A defect of these is Lensbox's own.
OWN = (LENSBOX, LENSBOX_JAGGED, LENSBOX_WITH_GRADIENT, LENSBOX_ANY_WEIGHT)
EAGER = "eager"
ARTICLE_KERNEL = "article's kernel"
TRITON = "triton"
COMPILED = "torch.compile"
COMPILED_MAX = "torch.compile max-autotune"
PER_SAMPLE = "per-sample loop"
TORCHVISION = "torchvision"
TORCHVISION_NMS = "torchvision nms"
TORCHVISION_BATCHED_NMS = "torchvision batched_nms"

FORWARD_ONLY = "forward only"
WAITS = "it waits for the device (indexing with a mask)"

LOSS_PEERS: list[Peer[Loss]] = [
    Peer(LENSBOX, lensbox_ops.load_loss),
    Peer(LENSBOX_WITH_GRADIENT, lensbox_ops.load_loss_and_gradient, gives_gradient=True),
    Peer(LENSBOX_JAGGED, lensbox_ops.load_jagged_loss),
    Peer(EAGER, eager.load_loss),
    Peer(COMPILED, compiled.load_loss(compiled.DEFAULT), slow_to_start=True),
    Peer(COMPILED_MAX, compiled.load_loss(compiled.MAX_AUTOTUNE), slow_to_start=True),
    Peer("concatenation", concatenation.load_loss, rotates=False),
    Peer(PER_SAMPLE, per_sample.load_loss, not_capturable="thousands of launches"),
    Peer(ARTICLE_KERNEL, article_kernel.load_loss, no_backward=FORWARD_ONLY),
    Peer(TRITON, triton_loss.load_loss),
    Peer(TORCHVISION, torchvision_ops.load_loss, not_capturable=WAITS),
    Peer("empty op", empty.load_empty_op, no_backward=FORWARD_ONLY, not_capturable="it launches nothing"),
    Peer("empty kernel", empty.load_empty_launch, no_backward=FORWARD_ONLY),
]
FLOORS = ("empty op", "empty kernel")
# Who is measured at every size. The others take seconds a call at the larger ones, or as long to compile.
SWEPT = (LENSBOX, LENSBOX_WITH_GRADIENT, LENSBOX_JAGGED, EAGER, COMPILED, ARTICLE_KERNEL, TRITON)

# int32 weights hold the same values in as many bytes, and go to the kernel that reads any dtype.
WEIGHTED_LOSS_PEERS: list[Peer[Loss]] = [
    Peer(LENSBOX, lensbox_ops.load_weighted_loss),
    Peer(LENSBOX_WITH_GRADIENT, lensbox_ops.load_weighted_loss_and_gradient, gives_gradient=True),
    Peer(LENSBOX_ANY_WEIGHT, lensbox_ops.load_loss_of_any_weight),
    Peer(EAGER, eager.load_weighted_loss),
    Peer(COMPILED, compiled.load_weighted_loss, slow_to_start=True),
]

# Without padding: torchvision's function does the whole of the work.
UNPADDED_LOSS_PEERS: list[Peer[Loss]] = [
    Peer(LENSBOX, lensbox_ops.load_loss),
    Peer(EAGER, eager.load_loss),
    Peer(COMPILED, compiled.load_loss(compiled.DEFAULT), slow_to_start=True),
    Peer(TORCHVISION, torchvision_ops.load_unpadded_loss, not_capturable=WAITS),
]

TRANSFER_PEERS: list[Peer[Loss]] = [
    Peer(LENSBOX, lensbox_ops.load_transfer),
    Peer(LENSBOX_JAGGED, lensbox_ops.load_jagged_transfer),
    Peer(EAGER, eager.load_transfer),
    Peer(PER_SAMPLE, per_sample.load_transfer),
]

NMS_PEERS: list[NmsPeer] = [
    NmsPeer(LENSBOX, lensbox_ops.load_nms, kept=lensbox_ops.kept_by_nms),
    NmsPeer(
        TORCHVISION_NMS,
        torchvision_ops.load_nms,
        kept=torchvision_ops.kept_by_nms,
        not_capturable="it waits for the device",
    ),
    NmsPeer(
        TORCHVISION_BATCHED_NMS,
        torchvision_ops.load_batched_nms,
        kept=torchvision_ops.kept_by_nms,
        not_capturable="it waits for the device",
    ),
]

PAIRWISE_PEERS: list[Peer[Pairwise]] = [
    Peer(LENSBOX, lensbox_ops.load_pairwise),
    Peer(EAGER, eager.load_pairwise),
    Peer(COMPILED, compiled.load_pairwise, slow_to_start=True),
    Peer(TORCHVISION, torchvision_ops.load_pairwise),
]
