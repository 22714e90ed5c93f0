"""CPU ops share work among torch's threads, and give the same bits for any number of them."""

from collections.abc import Iterator

import pytest
import torch
from box_reference import random_boxes
from programs import run_python
from torch import Tensor

from lensbox.ops import jagged_giou_loss, letterbox, masked_giou_loss, padded_nms


@pytest.fixture(autouse=True)
def _threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def run_ops() -> list[Tensor]:
    """Return the results of the ops for inputs of several parts: a part of a loss has 8,192 slots."""
    torch.manual_seed(0)
    pred = random_boxes(90, 300).requires_grad_()
    target = random_boxes(90, 300).requires_grad_()
    weight = torch.rand(90, 300).requires_grad_()
    counts = torch.randint(0, 301, (90,))
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), counts.cumsum(0)])
    packed = random_boxes(int(offsets[-1])).requires_grad_()
    masked, jagged = masked_giou_loss(pred, target, weight), jagged_giou_loss(pred, packed, offsets)
    gradients = (
        *torch.autograd.grad(masked, (pred, target, weight)),
        *torch.autograd.grad(jagged, (pred, packed)),
    )
    images = [torch.randint(0, 256, (3, 40 + i, 90), dtype=torch.uint8) for i in range(9)]
    kept = padded_nms(random_boxes(9, 200), torch.rand(9, 200), 0.5, 0.1, 150, 100)
    return [masked.detach(), jagged.detach(), *gradients, *kept, letterbox(images, 64, 64).canvases]


@pytest.mark.parametrize("threads", [2, 3, 8])
def test_any_number_of_threads_gives_the_same_bits(threads: int) -> None:
    torch.set_num_threads(1)
    expected = run_ops()
    torch.set_num_threads(threads)
    for _ in range(3):
        for ours, theirs in zip(run_ops(), expected, strict=True):
            assert torch.equal(ours, theirs)


SCRIPT = """
import os, torch
from lensbox.ops import padded_nms
boxes, scores = torch.rand(64, 100, 4).cumsum(2), torch.rand(64, 100)
for threads in (1, 4):
    torch.set_num_threads(threads)
    before = len(os.listdir("/proc/self/task"))
    padded_nms(boxes, scores, 0.5, 0.1, 100, 100)
    print(len(os.listdir("/proc/self/task")) - before)
"""


def test_as_many_threads_as_torch_has() -> None:
    assert run_python("-c", SCRIPT).stdout.split() == ["0", "3"]
