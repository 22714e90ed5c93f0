"""Compare the artifact with torchvision's own SSDlite: detections in the same pictures, and speed.

`python compare.py ssdlite.pt [--weights F] [--device cpu]` exits with 1 if the detections differ.
"""

import argparse
import sys
from functools import partial
from pathlib import Path

import torch
import torchvision
from ssdlite import CATEGORIES, make_network
from torch import Tensor

from lensbox.cli.timing import time_in_turns
from lensbox.runtime import Artifact, load_artifact
from lensbox.runtime.detect.detection_sets import Difference, Found, Limits, found_in

PICTURES = 32
THRESHOLD = 0.5
LIMITS = Limits(boxes=0.1, scores=1e-3, iou=1e-3, extras={})  # of two float32 computations


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("artifact", type=Path)
    parser.add_argument("--weights", type=Path, help="the weights that the artifact was made from")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    torch.backends.cudnn.allow_tf32 = False
    artifact = load_artifact(options.artifact, options.device)
    network = make_network(options.weights).to(options.device)
    network.score_thresh = THRESHOLD
    canvases = pictures(artifact).to(options.device)

    def ours(batch: Tensor) -> dict[str, Tensor]:
        return artifact.detect_named(batch, THRESHOLD, network.nms_thresh)

    def theirs(batch: Tensor) -> list[dict[str, Tensor]]:
        with torch.inference_mode():
            return network(list(batch.float() / 255))

    where = torch.cuda.get_device_name() if canvases.is_cuda else "CPU"
    print(f"torch {torch.__version__}, torchvision {torchvision.__version__}, {where}")
    same = report_differences(ours(canvases), theirs(canvases), list(artifact.classes), network.nms_thresh)
    for batch in (canvases[:1], canvases):
        calls = {"torchvision": partial(theirs, batch), "artifact": partial(ours, batch)}
        times = time_in_turns(calls, torch.get_num_threads())
        shown = (f"{name} {1e3 * each.median:.2f} ms" for name, each in times.items())
        print(f"batch {len(batch):2}: {', '.join(shown)}")
    return 0 if same else 1


def pictures(artifact: Artifact) -> Tensor:
    """Return soft random spots, uint8 [32, 3, height, width], of the canvas's size: nothing is resized."""
    canvas = artifact.metadata.canvas
    assert canvas is not None
    coarse = torch.rand(PICTURES, 3, 12, 12, generator=torch.Generator().manual_seed(1))
    fine = torch.nn.functional.interpolate(coarse, (canvas.height, canvas.width), mode="bilinear")
    return (255 * fine).round().byte()


def report_differences(
    ours: dict[str, Tensor], theirs: list[dict[str, Tensor]], classes: list[str], iou_threshold: float
) -> bool:
    """Print the differences of the detections; return whether rounding explains them."""
    difference = Difference()
    for index, found in enumerate(theirs):
        names = [CATEGORIES[label] for label in found["labels"].tolist()]
        known = [name in classes for name in names]
        labels = torch.tensor([classes.index(name) for name in names if name in classes], dtype=torch.int64)
        expected = Found(found["boxes"][known].cpu(), found["scores"][known].cpu(), labels, False, {})
        actual = found_in(ours, None, index)
        difference.add(expected, actual, (THRESHOLD, iou_threshold), LIMITS, f"picture {index}")
    print(
        f"{len(difference.boxes)} detections in {len(theirs)} pictures are the same, "
        f"{difference.unexplained_count} have no counterpart; boxes differ by up to "
        f"{max(difference.boxes, default=0.0):.2g} px, scores by up to {difference.scores:.2g}"
    )
    return bool(difference.boxes) and not difference.unexplained


if __name__ == "__main__":
    sys.exit(main())
