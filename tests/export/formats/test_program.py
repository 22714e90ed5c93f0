"""Programs hold the loss with its gradient, and nothing of the machine that made them."""

import io
import zipfile
from pathlib import Path

import pytest
import torch
from small_detectors import Brightest, LosingItsOwnWay, Named
from torch import Tensor

from lensbox.common.errors import ArtifactError
from lensbox.export import save_artifact
from lensbox.runtime import load_artifact

BOXES = torch.tensor([[[1.0, 2, 5, 9], [0, 0, 8, 8]], [[3, 4, 9, 9], [2, 2, 3, 3]]])


class LosingUnseen(Brightest):
    def loss(self, predictions: Tensor, targets: Tensor) -> Tensor:
        distance = (predictions - targets).abs()
        return distance.mean() if float(distance.max()) > 3 else distance.sum()


@pytest.mark.parametrize("detector", [Brightest(), LosingItsOwnWay()])
def test_holds_the_loss_and_its_gradient(detector: Brightest, tmp_path: Path) -> None:
    path = tmp_path / "detector.pt2"
    save_artifact(detector, path, kind="program")
    artifact = load_artifact(path)
    loss = getattr(detector, "loss", torch.ops.lensbox.masked_giou_loss)
    for boxes in (BOXES, BOXES[0], BOXES[:1, :1], BOXES.double(), BOXES[0].double()):
        leaf = boxes.clone().requires_grad_()
        expected = loss(leaf, boxes + 1.5)
        (gradient,) = torch.autograd.grad(expected, leaf)
        value, found = artifact.loss_and_gradient(boxes, boxes + 1.5)
        assert value == pytest.approx(expected.item(), rel=1e-6)
        assert found is not None
        assert found.dtype == boxes.dtype
        torch.testing.assert_close(found, gradient, rtol=1e-5, atol=1e-7)
        assert artifact.loss(boxes, boxes + 1.5) == pytest.approx(value, rel=1e-6)


class Drawing(Brightest):
    """Draws random numbers, whose operator is not for programs."""

    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> Named:
        noise = torch.rand(1)  # the line
        return super().detect(images + noise * 0, score_threshold, iou_threshold)


class Dropping(Brightest):
    """Drops values as in training, which is no more a function of the image."""

    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> Named:
        kept = torch.nn.functional.dropout(images.float(), 1e-9, training=True)
        return super().detect(kept, score_threshold, iou_threshold)


class Normal(torch.nn.Module):
    """Draws random numbers in its forward."""

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.randn_like(x) * 0


class DrawingInside(Brightest):
    def __init__(self) -> None:
        super().__init__()
        self.layer = Normal()

    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> Named:
        return super().detect(self.layer(images.float()), score_threshold, iou_threshold)


@pytest.mark.parametrize(
    ("detector", "name", "line"),
    [
        (Drawing(), "aten::rand", "noise = torch.rand(1)"),
        (Dropping(), "aten::dropout but with train=False", "functional.dropout(images.float()"),
        (DrawingInside(), "aten::randn_like", "torch.randn_like(x) * 0"),
    ],
)
def test_names_the_line_of_an_operator_that_is_not_for_programs(
    detector: Brightest, name: str, line: str, tmp_path: Path
) -> None:
    with pytest.raises(ArtifactError) as raised:
        save_artifact(detector, tmp_path / "detector.pt2", kind="program")
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    place = next(number for number, text in enumerate(lines, 1) if line in text)
    assert f"a program must not call {name}" in str(raised.value)
    assert f"({__file__}:{place})" in str(raised.value)


def test_leaves_out_a_loss_without_a_graph(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "detector.pt2"
    metadata = save_artifact(LosingUnseen(), path, kind="program")
    assert "loss" not in metadata.methods
    assert "holds no loss" in caplog.text
    with pytest.raises(ValueError, match="loss must be computed"):
        load_artifact(path).loss(BOXES, BOXES)


def test_names_no_file_of_this_machine_and_folds_batch_norms(program_path: Path) -> None:
    with zipfile.ZipFile(io.BytesIO(program_path.read_bytes())) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("models/detect.json"))
        graph = archive.read(name)
        everything = b"".join(archive.read(entry) for entry in archive.namelist())
    assert b"aten.conv2d" in graph
    assert b"aten.batch_norm" not in graph
    assert b"_assert_tensor_metadata" not in graph
    assert str(Path(torch.__file__).parent).encode() not in everything
    assert str(Path(__file__).parents[3]).encode() not in everything
