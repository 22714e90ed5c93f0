"""The operators that a TorchScript file needs, and the libraries that the file carries."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import lensbox.ops  # noqa: F401 (registers torch.ops.lensbox)
from lensbox.common.errors import ArtifactError
from lensbox.export.formats.torchscript import custom_op_schemas, described_libraries
from lensbox.runtime.op_library import registered_schemas
from lensbox.runtime.torchscript import quiet_torchscript


class Branching(nn.Module):
    """Use an operator in a helper method that a branch calls."""

    def forward(self, boxes: Tensor) -> Tensor:
        if boxes.shape[0] > 1:
            return self.compare(boxes)
        return boxes

    def compare(self, boxes: Tensor) -> Tensor:
        overlaps: Tensor = torch.ops.lensbox.pairwise_giou(boxes, boxes)
        return overlaps

    @torch.jit.export
    def plain(self, boxes: Tensor) -> Tensor:
        return boxes * 2


def test_finds_only_the_operators_in_use() -> None:
    with quiet_torchscript():
        module = torch.jit.script(Branching())
    assert custom_op_schemas(module, ["forward", "plain"]) == [
        str(registered_schemas("lensbox::pairwise_giou")[0])
    ]
    assert custom_op_schemas(module, ["plain"]) == []


def test_rejects_bad_names_of_libraries(tmp_path: Path) -> None:
    for name in (".so", "-a", "a b", "ü.so", "x" * 101):
        (tmp_path / name).write_bytes(b"")
        with pytest.raises(ArtifactError, match="must have a name of letters, digits"):
            described_libraries([tmp_path / name])
    paths = [tmp_path / folder / "a.so" for folder in ("one", "two")]
    for path in paths:
        path.parent.mkdir()
        path.write_bytes(path.parent.name.encode())
    with pytest.raises(ArtifactError, match="must have different names"):
        described_libraries(paths)
