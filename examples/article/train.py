"""Train the article's net on its random data, and show which way its objective leads (docs/article.md).

The article's function returns the mean GIoU of the boxes, and calls it the loss. One run minimises the mean
GIoU, the other one 1 - GIoU, which `lensbox.ops` computes. The net is small, for a CPU.
"""

import argparse

import torch
from fake_data import FakeDataset
from torch import Tensor
from torch.utils.data import DataLoader

from lensbox.model import ArticleNet
from lensbox.ops import PackedTargets, collate_packed, jagged_giou_loss

HELD_OUT = 64
# An inverted box has no overlap and no gradient that would change that, so all boxes begin on the canvas.
FIRST_BOX = (64.0, 64.0, 192.0, 192.0)


def train(objective: str, steps: int, batch: int, device: str) -> tuple[float, float]:
    """Return the mean GIoU on samples that training does not see, before and after."""
    torch.manual_seed(0)
    net = ArticleNet((2, 4, 8, 8), 64)
    with torch.no_grad():
        net.output.bias.copy_(torch.tensor(FIRST_BOX).repeat(net.detections))
    net.to(device)
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    unseen = collate_packed([FakeDataset(HELD_OUT, seed=1)[index] for index in range(HELD_OUT)])

    def loss_of(images: Tensor, targets: PackedTargets) -> Tensor:
        moved = targets.to(device)
        return jagged_giou_loss(net(images.to(device)), moved.values, moved.offsets)

    def mean_giou() -> float:
        with torch.no_grad():
            return 1 - float(loss_of(*unseen))

    before = mean_giou()
    for images, targets in DataLoader(FakeDataset(steps * batch), batch, collate_fn=collate_packed):
        loss = loss_of(images, targets)
        optimizer.zero_grad()
        (1 - loss if objective == "mean GIoU" else loss).backward()
        optimizer.step()
    return before, mean_giou()


def main() -> None:
    """Train twice from the same weights and print the mean GIoU."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    print(f"{'minimised':<12}{'before':>9}{'after':>9}")
    for objective in ("mean GIoU", "1 - GIoU"):
        before, after = train(objective, options.steps, options.batch, options.device)
        verdict = "better" if after > before else "worse"
        print(f"{objective:<12}{before:9.4f}{after:9.4f}  {verdict}", flush=True)


if __name__ == "__main__":
    main()
