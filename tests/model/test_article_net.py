"""The article's network: its full size on the meta device, and its behaviour at a small size."""

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
    with pytest.raises(ValueError, match=r"shape \[B, 1, 256, 256\], got \[2, 1, 128, 128\]"):
        net(images[..., :128, :128])
    boxes.square().sum().backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name
