import re
from pathlib import Path

import PIL.Image
import pytest
import torch
from cpp_runtime.running import SaveStandIn
from torch import Tensor, nn

from lensbox.common.samples import DRAWN_BOXES
from lensbox.cpp_runtime import demo


class OneFace(nn.Module):
    """A detector that finds the drawn boxes moved by `shift`; the height tells the photographs apart."""

    hopper: Tensor
    astronaut: Tensor

    def __init__(self, shift: float) -> None:
        super().__init__()
        hopper, astronaut = (torch.tensor([box], dtype=torch.float32) for box in DRAWN_BOXES.values())
        self.register_buffer("hopper", hopper + shift)
        self.register_buffer("astronaut", astronaut + shift)

    @torch.jit.export
    def preprocess(self, images: list[Tensor], windows: Tensor) -> tuple[Tensor, Tensor]:
        is_hopper = int(windows[0, 5]) == 600
        return torch.full([1, 1, 256, 256], 1 if is_hopper else 0, dtype=torch.uint8), torch.ones(1, 6)

    @torch.jit.export
    def detect(
        self, images: Tensor, score_threshold: float, iou_threshold: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        box = self.hopper if bool(images.any()) else self.astronaut
        return box[None], torch.full([1, 1], 0.75), torch.ones(1, dtype=torch.int32)

    @torch.jit.export
    def restore(self, boxes: Tensor, geometry: Tensor) -> Tensor:
        return boxes

    @torch.jit.export
    def loss(self, predictions: Tensor, targets: Tensor) -> Tensor:
        loss: Tensor = torch.ops.lensbox.masked_giou_loss(predictions, targets)
        return loss


class NoFace(OneFace):
    @torch.jit.export
    def detect(
        self, images: Tensor, score_threshold: float, iou_threshold: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        return torch.zeros(1, 1, 4), torch.zeros(1, 1), torch.zeros(1, dtype=torch.int32)


@pytest.fixture
def arguments(runner: Path, tmp_path: Path) -> list[str]:
    return ["--runner", str(runner), "--output", str(tmp_path / "out")]


def test_demo_prints_and_draws(
    arguments: list[str], save_stand_in: SaveStandIn, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert demo.main([*arguments, "--artifact", str(save_stand_in(OneFace(shift=10.0)))]) == 0
    text = capfd.readouterr().out
    assert "grace_hopper.jpg, 512 x 600 pixels" in text
    x1, y1, x2, y2 = DRAWN_BOXES["astronaut.png"]
    assert f"face 1: score 0.750, x {x1 + 10:.1f} to {x2 + 10:.1f}, y {y1 + 10:.1f} to {y2 + 10:.1f}" in text

    assert re.search(r"GIoU loss 0\.\d{4}, that is, a GIoU of 0\.\d{4}", text)

    with PIL.Image.open(tmp_path / "out" / "demo.png") as picture:
        assert picture.size == (437 + demo.GAP + 512, 512)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["demo.png", "photos"]


def test_demo_names_a_photograph_without_a_face(
    arguments: list[str], save_stand_in: SaveStandIn, capfd: pytest.CaptureFixture[str]
) -> None:
    assert demo.main([*arguments, "--artifact", str(save_stand_in(NoFace(shift=0.0)))]) == 1
    assert "demo: no face was found in grace_hopper.jpg" in capfd.readouterr().err


def test_demo_reports_a_failed_or_missing_runner(
    arguments: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert demo.main([*arguments, "--artifact", str(tmp_path / "absent.pt")]) == 1
    assert "demo: lensbox_runner detect failed with exit code 3" in capfd.readouterr().err
    assert demo.main(["--runner", str(tmp_path / "absent")]) == 1
    assert "make runner" in capfd.readouterr().err
