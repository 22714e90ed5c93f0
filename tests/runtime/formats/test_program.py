"""Programs move to a device as a whole."""

import torch
from torch import Tensor, nn

from lensbox.runtime.formats.program import run_on


class MakingTensors(nn.Module):
    """Tensors of all kinds that a graph makes: by a device, by a conversion, from a constant, a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        rows = torch.arange(3, device=x.device).to(x.device, torch.float32)
        return x + rows * self.weight + torch.tensor([1.0, 2.0, 3.0])


def test_all_tensors_move_to_the_device() -> None:
    """To torch's device without storage, which refuses tensors of others as a GPU does."""
    network, x = MakingTensors(), torch.zeros(3)
    program = torch.export.export(network, (x,))
    (on_cpu,) = run_on(program, torch.device("cpu"))(x)
    assert torch.equal(on_cpu, network(x))
    (moved,) = run_on(program, torch.device("meta"))(x.to("meta"))
    assert moved.device.type == "meta"
