"""The article's network, small for its behaviour and on the meta device for its size."""

import pytest
import torch

from lensbox.model import ArticleNet


def test_full_size_is_the_article_s() -> None:
    with torch.device("meta"):
        net = ArticleNet()
        boxes = net(torch.zeros(2, 1, 256, 256))
    assert tuple(net.hidden.weight.shape) == (16384, 65536)
    assert tuple(net.output.weight.shape) == (1024, 16384)
    assert boxes.shape == (2, 256, 4)
    assert sum(parameter.numel() for parameter in net.parameters()) > 1_000_000_000


def test_small_net_has_shapes_and_gradients() -> None:
    torch.manual_seed(0)
    net = ArticleNet(channels=(2, 3, 4, 5), hidden=16, detections=6)
    images = torch.randint(0, 256, (2, 1, 256, 256), dtype=torch.uint8)
    boxes = net(images)
    assert (boxes.shape, boxes.dtype) == ((2, 6, 4), torch.float32)
    assert torch.equal(net(images.float()), boxes)
    boxes.square().sum().backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


def test_other_shapes_are_refused() -> None:
    net = ArticleNet(channels=(1, 1, 1, 1), hidden=1, detections=1)
    with pytest.raises(
        ValueError, match=r"images must have the shape \[B, 1, 256, 256\], got \[1, 1, 128, 128\]"
    ):
        net(torch.zeros(1, 1, 128, 128))
