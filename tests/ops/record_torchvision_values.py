"""Writes torchvision_values.json: what torchvision gives for boxes drawn here.

Run where torchvision imports (it needs a torch build of its own kind):
    python tests/ops/record_torchvision_values.py > tests/ops/torchvision_values.json
"""

import json
import sys

import torch
import torchvision  # pyright: ignore[reportMissingImports]
from torchvision import ops  # pyright: ignore[reportMissingImports]


def draw_boxes(count: int, size: float) -> torch.Tensor:
    low = torch.rand(count, 2) * size * 0.7
    return torch.cat([low, low + 1 + torch.rand(count, 2) * size * 0.3], 1)


def main() -> None:
    torch.manual_seed(7)
    values: dict[str, object] = {
        "source": f"torchvision {torchvision.__version__}, torch {torch.__version__}, CPU"
    }
    boxes1, boxes2 = draw_boxes(24, 100), draw_boxes(24, 100)
    values["boxes1"], values["boxes2"] = boxes1.tolist(), boxes2.tolist()
    values["box_iou"] = ops.box_iou(boxes1, boxes2).tolist()
    values["generalized_box_iou"] = ops.generalized_box_iou(boxes1, boxes2).tolist()
    for reduction in ("none", "mean", "sum"):
        pred = boxes1.clone().requires_grad_()
        loss = ops.generalized_box_iou_loss(pred, boxes2, reduction=reduction)
        loss.sum().backward()
        assert pred.grad is not None
        values[f"loss_{reduction}"] = loss.tolist()
        values[f"loss_{reduction}_grad"] = pred.grad.tolist()
    boxes, scores, kinds = draw_boxes(60, 40), torch.rand(60), torch.randint(0, 3, (60,))
    values |= {"nms_boxes": boxes.tolist(), "nms_scores": scores.tolist(), "nms_categories": kinds.tolist()}
    values["nms"] = ops.nms(boxes, scores, 0.5).tolist()
    values["batched_nms"] = ops.batched_nms(boxes, scores, kinds, 0.5).tolist()
    lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(value)}" for name, value in values.items())
    sys.stdout.write(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    main()
