"""A small network whose exported program has arguments of many kinds, with the same weights everywhere.

`python -m tests.helpers.small_program FILE` writes the program as the installed torch does.
"""

import sys

import torch
from torch import Tensor, nn
from torch.export import Dim


class SmallNetwork(nn.Module):
    """Takes [B, 3, 8, 9] of any B; returns [B, 2] and [B * 6]."""

    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        for number, weight in enumerate(self.conv.parameters()):
            values = torch.arange(weight.numel(), dtype=torch.float64).mul(0.7).add(number).sin()
            weight.data = values.float().reshape(weight.shape)
        self.register_buffer("scale", torch.tensor([[[0.25]], [[4.0]]]))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Convolve, split, combine, and sum in two ways."""
        y = torch.relu_(self.conv(x).to(torch.float64).float())
        left, right = y.split(2, 1)
        mixed = left * self.scale - 0.5 * right.clamp(max=1)
        rows = mixed.transpose(1, 2).reshape(mixed.shape[0] * mixed.shape[2], -1)
        return mixed.mean((2, 3)), rows.sum(1) + torch.arange(rows.shape[0], device=x.device)


class Sizes(nn.Module):
    """Sizes that depend on comparisons of sizes. Takes [B, 2] of any B."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Return zeros, as many as the rows decide, and a multiple of the input."""
        rows = x.shape[0]
        count = torch.sym_ite(torch.sym_not(rows * 2 >= 10), rows * 3, rows // 2 + 1)
        return x.new_zeros(count), x * count


def main(file: str) -> None:
    """Write the program."""
    sizes = {0: Dim("batch", max=64)}
    with torch.no_grad():
        example = torch.zeros(2, 3, 8, 9)
        program = torch.export.export(SmallNetwork().eval(), (example,), dynamic_shapes=(sizes,))
    program.example_inputs = None
    for node in program.graph.nodes:
        for note in ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn", "from_node"):
            node.meta.pop(note, None)  # names files of this machine
    torch.export.save(program, file)


if __name__ == "__main__":
    main(sys.argv[1])
