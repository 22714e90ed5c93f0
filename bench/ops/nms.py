"""The cases of NMS: batches of images, and the reference that says which boxes are kept."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from lensbox.bench.measure import Case, WrongAnswerError, optional
from lensbox.cli.bench import Call
from lensbox.ops import box_iou, padded_nms

SHAPES = {"cpu": ((1, 1000),), "cuda": ((128, 1024), (256, 256), (1, 1024))}  # images, boxes
IOU_THRESHOLD = 0.5

Load = Callable[[Tensor, Tensor], Call]  # of boxes [B, N, 4] and scores [B, N]; raises UnavailableError


def cases(group: str, device: torch.device, quick: bool) -> Iterator[Case]:
    """Yield NMS of batches of images. All scores pass, and every box fits into the output."""
    for images, count in SHAPES[device.type]:
        boxes, scores = make_boxes(images, count, device)
        ways = {name: partial(load, boxes, scores) for name, load in PEERS.items()}
        title = f"NMS, [{images}, {count}], {device.type.upper()}"
        yield Case(title, device.type, ways, partial(check, boxes, scores))


def make_boxes(images: int, count: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return boxes `[images, count, 4]` on a canvas of 640 by 640, and scores, all different in an image.

    Coordinates are whole numbers, so that every implementation computes the same overlaps.
    """
    generator = torch.Generator().manual_seed(0)
    low = torch.randint(0, 504, (images, count, 2), generator=generator)
    side = torch.randint(8, 136, (images, count, 2), generator=generator)
    ranks = torch.rand(images, count, generator=generator).argsort(1)
    boxes = torch.cat([low, low + side], -1)
    return boxes.to(device, torch.float32), ((ranks + 1) / (count + 1)).to(device)


def _lensbox(boxes: Tensor, scores: Tensor) -> Call:
    count = scores.shape[1]
    return partial(padded_nms, boxes, scores, IOU_THRESHOLD, -1.0, count, count)


def _torchvision(boxes: Tensor, scores: Tensor) -> Call:
    ops = optional("torchvision.ops")
    if len(boxes) == 1:
        return partial(ops.nms, boxes[0], scores[0], IOU_THRESHOLD)
    images = torch.arange(len(boxes), device=boxes.device).repeat_interleave(scores.shape[1])
    return partial(ops.batched_nms, boxes.flatten(0, 1), scores.flatten(), images, IOU_THRESHOLD)


PEERS: dict[str, Load] = {"lensbox": _lensbox, "torchvision": _torchvision}


def check(boxes: Tensor, scores: Tensor, _: str, answer: Any) -> None:
    """Raise WrongAnswerError if an answer keeps other boxes than the reference."""
    kept = torch.zeros_like(scores, dtype=torch.int32)
    if isinstance(answer, Tensor):  # indices into the boxes of all images
        kept.view(-1)[answer] = 1
    else:  # unused slots hold index -1: they add nothing to box 0
        kept.scatter_add_(1, answer.indices.clamp(min=0), (answer.indices >= 0).int())
    if differing := int(((kept > 0) != nms_reference(boxes, scores)).sum()):
        raise WrongAnswerError(f"{differing} of {kept.numel()} boxes are kept or dropped wrongly")


def nms_reference(boxes: Tensor, scores: Tensor) -> Tensor:
    """Return which boxes greedy suppression keeps, bool `[B, N]`."""
    order = scores.argsort(dim=1, descending=True)
    ranked = boxes.gather(1, order[..., None].expand(-1, -1, 4))
    exceeds = box_iou(ranked, ranked) > IOU_THRESHOLD
    kept = torch.ones_like(scores, dtype=torch.bool)
    for rank in range(kept.shape[1]):
        kept[:, rank + 1 :] &= ~(exceeds[:, rank, rank + 1 :] & kept[:, rank, None])
    return torch.zeros_like(kept).scatter_(1, order, kept)
