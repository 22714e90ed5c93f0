"""Copies of tensors to a GPU and back keep values and layouts."""

import numpy as np
import pytest
import torch
from torch import Tensor

from lensbox.runtime.detect.transfer import _fill, _layout, _views, packed, to_device, to_host, unpacked


def _tensors() -> list[Tensor]:
    image = torch.randint(0, 256, (37, 53, 4), dtype=torch.uint8)
    return [
        image[..., :3].contiguous().permute(2, 0, 1),
        image.permute(2, 0, 1).contiguous(),
        image[3:20, 4:50, 1:].permute(2, 0, 1),  # a view with gaps
        image[:1, :1, :1],
        torch.rand(5, 6),
    ]


def test_buffers_keep_values_and_layouts() -> None:
    alike = [torch.full((5, 7, 3), value, dtype=torch.uint8).permute(2, 0, 1) for value in range(3)]
    tensors = [torch.full((300,), 7, dtype=torch.uint8), *_tensors(), *alike, alike[0].contiguous()]
    tensors += [torch.rand(2, 6), torch.rand(2, 6), alike[1]]
    layouts = [_layout(tensor) for tensor in tensors]
    buffer = torch.zeros(sum(layout.size for layout in layouts), dtype=torch.uint8)
    _fill(buffer, tensors, layouts)
    views = _views(buffer, layouts)
    assert len(views) == len(tensors)
    for index, (view, tensor) in enumerate(zip(views, tensors, strict=True)):
        assert view.dtype == tensor.dtype
        assert view.equal(tensor)
        if index not in (3, 4):  # views of larger tensors: their copies are dense
            assert view.stride() == tensor.stride()
    assert views[1].data_ptr() == buffer.data_ptr() + 512  # 300 bytes, aligned
    assert not buffer[300:512].any()


def test_tensors_arrive(device: torch.device) -> None:
    tensors = _tensors()
    tensors.insert(2, torch.arange(10, device=device))
    arrived = to_device(tensors, device)
    assert len(arrived) == len(tensors)
    for one, other in zip(arrived, tensors, strict=True):
        assert one.device.type == device.type
        assert one.dtype == other.dtype
        assert one.cpu().equal(other.cpu())
    assert arrived[0].stride() == tensors[0].stride()
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
    copy, same = to_host([together, counts.to(device)])
    assert same.tolist() == counts.tolist()
    found = unpacked(copy)
    assert np.array_equal(found[0], boxes)
    assert np.array_equal(found[1], scores)
    assert found[2] == [0, 256, 17]
