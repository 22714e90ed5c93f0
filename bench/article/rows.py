"""The rows of the table: the article's five, what it names without trying, and Lensbox's two."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic

import torch
from torch import Tensor

from lensbox.bench.article import published
from lensbox.bench.article.published import Published
from lensbox.bench.article.targets import LISTED, PACKED, PADDED, Layout, Targets
from lensbox.bench.peers import article_kernel, compiled, eager, lensbox_ops, triton_loss
from lensbox.bench.peers.concatenation import concatenated_loss
from lensbox.bench.peers.per_sample import looped_loss

Loss = Callable[[Tensor, Targets], Tensor]


@dataclass(frozen=True)
class Row(Generic[Targets]):
    """A way to get from predictions `[B, SLOTS, 4]` and the boxes of a batch to the loss.

    load: makes the loss for a device; raises UnavailableError.
    published: the article's own figures, where it has this row.
    no_backward: why it has no gradient, or "".
    slow_to_start: whether `--quick` leaves it out.
    """

    name: str
    layout: Layout[Targets]
    load: Callable[[torch.device], Loss[Targets]]
    published: Published | None = None
    no_backward: str = ""
    slow_to_start: bool = False


FORWARD_ONLY = "forward only: it has no derivative"
LENSBOX = "Lensbox, padded"
LENSBOX_JAGGED = "Lensbox, jagged"
OWN = (LENSBOX, LENSBOX_JAGGED)

ROWS: list[Row[Any]] = [
    Row("per-sample loop", LISTED, lambda _: looped_loss, published.PER_SAMPLE),
    Row("concatenation", LISTED, lambda _: concatenated_loss, published.CONCATENATION),
    Row("padding", PADDED, lambda _: eager.padded_loss, published.PADDING),
    Row(
        "article's kernel",
        PADDED,
        lambda device: article_kernel.load_padded_loss(device, skip=False),
        published.KERNEL,
        no_backward=FORWARD_ONLY,
    ),
    Row(
        "article's kernel, conditional",
        PADDED,
        lambda device: article_kernel.load_padded_loss(device, skip=True),
        published.CONDITIONAL,
        no_backward=FORWARD_ONLY,
    ),
    Row("Triton", PADDED, triton_loss.load_padded_loss),
    Row("torch.compile of padding", PADDED, lambda _: compiled.compiled_loss(), slow_to_start=True),
    Row(LENSBOX, PADDED, lensbox_ops.load_padded_loss),
    Row(LENSBOX_JAGGED, PACKED, lensbox_ops.load_packed_loss),
]
