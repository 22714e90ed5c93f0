"""Train a detector of your own on Lensbox's ops: python train_own.py data.json --val val.json

The data have the classes below, in a layout of docs/training.md#your-photographs; without data, the program
draws discs and squares. It prints COCO's figures and writes weights.pt and curves.png. Then export the
detector, in the folder of this file:

    lensbox export --model train_own:Own --weights runs/own/weights.pt --output own.pt
"""

import json
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from PIL import Image, ImageDraw
from torch import Tensor, nn
from torch.utils.data import DataLoader

from lensbox.evaluation.data.account import Account
from lensbox.evaluation.data.labels import LabelledImage, read_labels
from lensbox.evaluation.evaluate import evaluate
from lensbox.model import DetectorSpec
from lensbox.ops import PackedTargets, collate_packed, letterbox, masked_giou_loss
from lensbox.ops.canvas import place_boxes
from lensbox.runtime.images.files import read_image

CLASSES = ("disc", "square")
SIDE, STRIDE = 128, 8  # of the canvas and of its cells, pixels


class Own(nn.Module):
    """A convolutional network that predicts a box and the logits of the classes in each cell of a grid."""

    centers: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.specification = DetectorSpec(SIDE, SIDE, name="own", classes=CLASSES)
        self.side, self.stride = SIDE, STRIDE
        layers: list[nn.Module] = []
        for inputs, outputs, stride in ((3, 16, 2), (16, 32, 2), (32, 64, 2), (64, 64, 1)):
            layers += [nn.Conv2d(inputs, outputs, 3, stride, 1), nn.BatchNorm2d(outputs), nn.ReLU()]
        self.net = nn.Sequential(*layers, nn.Conv2d(64, 4 + len(CLASSES), 3, 1, 1))
        axis = (torch.arange(SIDE // STRIDE) + 0.5) * STRIDE
        self.register_buffer("centers", torch.cartesian_prod(axis, axis).flip(1))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return boxes [B, cells, 4] in canvas pixels and logits [B, cells, classes] for uint8 images."""
        raw = self.net(images.float() / 255 - 0.5).flatten(2).transpose(1, 2)
        reach = raw[..., :4].clamp(-3.0, 3.0).exp() * self.stride
        return torch.cat([self.centers - reach[..., :2], self.centers + reach[..., 2:]], 2), raw[..., 4:] - 4

    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> dict[str, Tensor]:
        boxes, logits = self.forward(images)
        scores, labels = logits.sigmoid().max(2)
        boxes, scores, kept, counts = torch.ops.lensbox.padded_nms(
            boxes.clamp(0, self.side), scores, iou_threshold, score_threshold, 256, 50, labels
        )
        labels = labels.gather(1, kept.clamp(min=0).long())
        return {"boxes": boxes, "scores": scores, "counts": counts, "labels": labels}


def read(path: Path) -> list[LabelledImage]:
    """Return labelled photographs, and print the account of what was read and what was left out."""
    account = Account()
    images, _ = read_labels([path], split="val" if path.stem == "val" else "train", account=account)
    print(f"{path}:", *account.lines(), sep="\n")
    return images


def on_canvas(image: LabelledImage) -> tuple[Tensor, Tensor]:
    """Return a canvas, and rows [n, 5]: a box in canvas pixels, and its class."""
    canvases, geometry = letterbox([read_image(image.path)], SIDE, SIDE, 3)
    boxes = place_boxes(torch.from_numpy(image.boxes), geometry[0])
    classes = torch.tensor([CLASSES.index(name) for name in image.classes])
    return canvases[0], torch.cat([boxes, classes.view(-1, 1).float()], 1)


def loss_of(detector: nn.Module, images: Tensor, targets: PackedTargets) -> Tensor:
    """Return the loss: the cell that holds the centre of a box learns the box and its class."""
    predicted, logits = detector(images)
    boxes, labels = targets.values[:, :4].contiguous(), targets.values[:, 4].long()
    image = torch.repeat_interleave(targets.offsets.diff())
    x, y = ((boxes[:, :2] + boxes[:, 2:]) / 2 / STRIDE).long().clamp(0, SIDE // STRIDE - 1).unbind(1)
    cell = y * (SIDE // STRIDE) + x
    wanted = torch.zeros_like(logits).index_put((image, cell, labels), torch.ones((), device=logits.device))
    classification = F.binary_cross_entropy_with_logits(logits, wanted, reduction="sum") / max(len(boxes), 1)
    return classification + masked_giou_loss(predicted[image, cell], boxes)


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="?", help="labelled photographs (drawn pictures)")
    parser.add_argument("--val", type=Path, help="other photographs, to score on")
    parser.add_argument("--output", type=Path, default=Path("runs/own"))
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    if (options.data is None) != (options.val is None):
        parser.error("data and --val must be given together, got one of them")
    if options.data is None:
        options.data = draw_pictures(options.output / "train", 64)
        options.val = draw_pictures(options.output / "val", 16)
    data, val = (read(path) for path in (options.data, options.val))
    loader = DataLoader([on_canvas(image) for image in data], 8, shuffle=True, collate_fn=collate_packed)
    detector = Own().to(options.device)
    optimizer = torch.optim.AdamW(detector.parameters(), lr=2e-3)
    curves: dict[str, list[float]] = {"loss": [], "COCO AP50": []}
    for epoch in range(options.epochs):
        losses = []
        for images, targets in loader:
            loss = loss_of(detector, images.to(options.device), targets.to(options.device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        figures = evaluate(detector, val)  # of both classes, as `lensbox evaluate` of the exported file
        curves["loss"].append(sum(losses) / len(losses))
        curves["COCO AP50"].append(figures.coco["AP50"])
        print(f"epoch {epoch + 1}: " + ", ".join(f"{name} {curves[name][-1]:.3f}" for name in curves))
    print("\n".join(figures.lines()))
    options.output.mkdir(parents=True, exist_ok=True)
    torch.save(detector.state_dict(), options.output / "weights.pt")
    draw(curves, options.output / "curves.png")


def draw_pictures(folder: Path, count: int) -> Path:
    """Draw pictures with a dark disc or square each, and return their labels, a COCO file."""
    rng = np.random.default_rng(count)
    images, rows = [], []
    folder.mkdir(parents=True, exist_ok=True)
    for index in range(count):
        x, y, shade = rng.integers(0, 60, 3).tolist()
        side = int(rng.integers(25, 40))
        picture = Image.new("RGB", (120, 100), (200, 200, 200))
        pen = ImageDraw.Draw(picture)
        shape = (pen.ellipse, pen.rectangle)[index % 2]
        shape((x, y, x + side - 1, y + side - 1), fill=(shade, shade, shade))
        picture.save(folder / f"{index}.png")
        images.append({"id": index, "file_name": f"{index}.png"})
        rows.append({"id": index, "image_id": index, "category_id": index % 2, "bbox": [x, y, side, side]})
    names = [{"id": index, "name": name} for index, name in enumerate(CLASSES)]
    labels = folder / "labels.json"
    labels.write_text(json.dumps({"images": images, "categories": names, "annotations": rows}))
    return labels


def draw(curves: dict[str, list[float]], path: Path) -> None:
    """Draw a panel for each curve over the epochs."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3), layout="constrained")
    for panel, (name, values) in zip(figure.subplots(1, len(curves)), curves.items(), strict=True):
        panel.plot(range(1, len(values) + 1), values)
        panel.set(title=name, xlabel="epoch")
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
