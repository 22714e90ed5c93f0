"""Copies of tensors to a GPU and back keep values and layouts."""

import numpy as np
import pytest
import torch
from torch import Tensor

from lensbox.runtime.detect.transfer import _fill, _layout, _views, packed, to_device, to_host, unpacked


def _tensors() -> list[Tensor]:
    image = torch.randint(0, 256, (37, 53, 4), dtype=torch.uint8)
    alike = [torch.full((5, 7, 3), value, dtype=torch.uint8).permute(2, 0, 1) for value in range(3)]
    return [
        torch.full((300,), 7, dtype=torch.uint8),
        image[..., :3].contiguous().permute(2, 0, 1),
        image.permute(2, 0, 1).contiguous(),
        torch.rand(5, 6),
        *(*alike, alike[0].contiguous(), torch.rand(2, 6), torch.rand(2, 6), alike[1]),
        image[3:20, 4:50, 1:].permute(2, 0, 1),  # a view with gaps, whose copy is dense
        image[:1, :1, :1],
    ]


def test_buffers_keep_values_and_layouts() -> None:
    tensors = _tensors()
    layouts = [_layout(tensor) for tensor in tensors]
    buffer = torch.zeros(sum(layout.size for layout in layouts), dtype=torch.uint8)
    _fill(buffer, tensors, layouts)
    _assert_equal(_views(buffer, layouts), tensors)


def _assert_equal(copies: list[Tensor], tensors: list[Tensor]) -> None:
    for copy, tensor in zip(copies, tensors, strict=True):
        assert copy.dtype == tensor.dtype
        assert copy.cpu().equal(tensor.cpu())
    assert [copy.stride() for copy in copies[:-2]] == [tensor.stride() for tensor in tensors[:-2]]


def test_tensors_arrive(device: torch.device) -> None:
    tensors = _tensors()
    tensors.insert(2, torch.arange(10, device=device))
    arrived = to_device(tensors, device)
    _assert_equal(arrived, tensors)
    assert {one.device.type for one in arrived} == {device.type}
    assert arrived[2] is tensors[2]


@pytest.mark.gpu
def test_staging_memory_is_not_overwritten_while_it_is_read() -> None:
    """Copies are asynchronous, and later calls reuse pinned memory."""
    tensors = [torch.full((3, 500, 500), value, dtype=torch.uint8) for value in range(40)]
    with torch.inference_mode():
        arrived = [to_device([tensor], torch.device("cuda"))[0] for tensor in tensors]
    for value, tensor in enumerate(arrived):
        assert bool((tensor == value).all())


def test_outputs_come_back(device: torch.device) -> None:
    boxes, scores = torch.rand(3, 256, 4), torch.rand(3, 256)
    counts = torch.tensor([0, 256, 17], dtype=torch.int32)
    together = packed(boxes.to(device), scores.to(device), counts.to(device))
    copy, same = to_host([together, counts.to(device)]).wait()
    assert same.tolist() == counts.tolist()
    found = unpacked(copy)
    assert np.array_equal(found[0], boxes)
    assert np.array_equal(found[1], scores)
    assert found[2] == [0, 256, 17]
