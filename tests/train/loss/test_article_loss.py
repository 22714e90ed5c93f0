"""What the article's own loss does to boxes."""

import torch

from lensbox.model import ArticleNet
from lensbox.ops import masked_giou_loss
from lensbox.train.article.random_data import FakeDataset
from lensbox.train.data.image_store import fill_slots


def article_run(sign: int) -> tuple[float, float]:
    """Trains a small ArticleNet on three of the article's images. Returns the mean GIoU before and after."""
    torch.manual_seed(0)
    net = ArticleNet(channels=(4, 8, 8, 8), hidden=64, detections=8)
    with torch.no_grad():  # start with boxes on the canvas that depend on the image
        net.output.bias.copy_(torch.tensor([60.0, 60.0, 200.0, 200.0]).repeat(8))
        net.output.weight.mul_(10)
    data = FakeDataset(3, max_boxes=8)
    pictures, boxes = zip(*(data[i] for i in range(3)), strict=True)
    # Noise alone looks all the same.
    images = torch.stack(pictures) * torch.tensor([0.1, 0.5, 1.0]).view(3, 1, 1, 1)
    targets = fill_slots(boxes, [torch.zeros(len(rows)).bool() for rows in boxes], 8).boxes
    optimizer = torch.optim.Adam(net.parameters(), lr=0.003)
    values = []
    for _ in range(160):
        loss = masked_giou_loss(net(images), targets)
        values.append(1 - float(loss.detach()))
        optimizer.zero_grad()
        (loss if sign > 0 else 1 - loss).backward()
        optimizer.step()
    return values[0], values[-1]


def test_minimising_the_articles_mean_giou_makes_boxes_worse() -> None:
    """The article's function returns the mean GIoU; minimised, it drives boxes away from their targets."""
    start, end = article_run(sign=-1)
    assert end < start - 0.2
    start, end = article_run(sign=+1)
    assert end > start + 0.35
