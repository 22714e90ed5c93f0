"""What TorchScript cannot compile is reported with reason, file and line of the user's code."""

import linecache
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from user_detectors import Brightest

from lensbox.errors import ArtifactError
from lensbox.export.artifact_writer import save_artifact
from lensbox.model import Detector

Found = tuple[Tensor, Tensor, Tensor]


class UsesNumpy(Brightest):
    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> Found:
        brightest = self.as_numbers(images)  # calls
        print(len(brightest))
        return super().detect(images, score_threshold, iou_threshold)

    def as_numbers(self, images: Tensor) -> Tensor:
        return torch.from_numpy(images.numpy())  # fails


class Mixed(Brightest):
    def __init__(self) -> None:
        super().__init__()
        self.table = {"a": 1, 2: "b"}

    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> Found:
        assert len(self.table) == 2  # fails
        batch = images.shape[0]
        return torch.zeros(batch, 1, 4), torch.zeros(batch, 1), torch.zeros(batch, dtype=torch.int32)


class InForward(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        chosen = [i for i in range(4) if i > 2]  # fails
        return x[chosen]


class Nested(Mixed):
    def __init__(self) -> None:
        super().__init__()
        self.inner = InForward()


def line_of(comment: str, after: str) -> str:
    """'file:line' of the first line with a comment after one that contains another text."""
    lines = linecache.getlines(__file__)
    start = next(number for number, line in enumerate(lines) if line.startswith(after))
    number = next(number for number in range(start, len(lines)) if lines[number].endswith(f"# {comment}\n"))
    return f"{__file__}:{number + 1}"


@pytest.mark.parametrize(
    ("detector", "reason", "owner"),
    [
        (UsesNumpy(), "has no attribute or method 'numpy'", "UsesNumpy"),
        (Mixed(), "Module 'Mixed' has no attribute 'table' .*Found str and int", "Mixed"),
        (Nested(), "Comprehension ifs are not supported yet", "InForward"),
    ],
)
def test_reason_and_line_are_named(detector: Detector, reason: str, owner: str, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=reason) as caught:
        save_artifact(detector, tmp_path / "a.pt")
    message = str(caught.value)
    assert message.startswith("the detector cannot be exported, as TorchScript cannot compile it: ")
    assert f"\n  {line_of('fails', f'class {owner}(')}: " in message
    if owner == "UsesNumpy":
        assert f"\n  {line_of('calls', 'class UsesNumpy(')}: brightest = self.as_numbers(images)" in message
    assert len(message.splitlines()) <= 4
    assert "<--- HERE" not in message
    assert not list(tmp_path.iterdir())
