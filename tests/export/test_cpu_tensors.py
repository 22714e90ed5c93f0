"""Tensors made on the CPU without `device=` are found before a GPU refuses them."""

import torch
from torch import Tensor, nn
from user_detectors import Brightest, Landmarks, RedAndBlue

from lensbox.export.cpu_tensors import cpu_tensors

Found = tuple[Tensor, Tensor, Tensor]


class OnTheCpu(Brightest):
    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> Found:
        boxes, scores, counts = super().detect(images, score_threshold, iou_threshold)
        steps = torch.arange(4).float() * 0.0
        return boxes + steps, scores, counts


class Moved(Brightest):
    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> Found:
        boxes, scores, counts = super().detect(images, score_threshold, iou_threshold)
        order = boxes[:, torch.arange(1)]  # an index may be on the CPU
        return order + torch.zeros(4).to(images.device) + torch.tensor(0.0), scores, counts


def test_names_the_line() -> None:
    (line,) = cpu_tensors(OnTheCpu())
    assert line.endswith("steps = torch.arange(4).float() * 0.0")
    assert "test_cpu_tensors.py:" in line


def test_what_runs_on_a_gpu_passes() -> None:
    detectors: list[nn.Module] = [Moved(), RedAndBlue(), Landmarks()]
    for detector in detectors:
        assert cpu_tensors(detector) == []  # type: ignore[arg-type]
