"""The operators that a TorchScript file needs."""

import torch
from torch import Tensor, nn

import lensbox.ops  # noqa: F401 (registers torch.ops.lensbox)
from lensbox.export.formats.torchscript import custom_op_schemas
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
