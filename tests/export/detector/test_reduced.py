"""Networks in float16 and bfloat16: the same answers but for rounding, in eager PyTorch and compiled."""

import copy
from typing import Any

import pytest
import torch
from small_detectors import Detected
from torch import Tensor, nn

from lensbox.export.detector.reduced import in_precision
from lensbox.export.formats.torchscript import script_and_freeze
from lensbox.model import DetectorSpec


class Net(nn.Module):
    """Batch norms in a sequence and elsewhere, a shared convolution, other norms and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.specification = DetectorSpec(height=12, width=12)
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.shared = nn.Conv2d(8, 8, 3, groups=8, padding="same", bias=False)
        self.levels = nn.ModuleList(
            nn.Sequential(self.shared, nn.BatchNorm2d(8, affine=affine)) for affine in (True, False)
        )
        self.conv, self.norm, self.last = nn.Conv2d(8, 8, 1, bias=False), nn.BatchNorm2d(8), nn.BatchNorm2d(8)
        self.up, self.group = nn.ConvTranspose2d(8, 4, 2), nn.GroupNorm(2, 4)
        self.linear = nn.Linear(4, 5)
        for layer in self.modules():
            if isinstance(layer, nn.BatchNorm2d):
                nn.init.uniform_(layer.running_mean, -1, 1)  # type: ignore[arg-type]
                nn.init.uniform_(layer.running_var, 0.5, 2)  # type: ignore[arg-type]
                if layer.affine:
                    nn.init.uniform_(layer.weight, 0.5, 1.5)
                    nn.init.uniform_(layer.bias, -1, 1)

    @torch.jit.export
    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> Detected:
        x = self.first(images.to(self.conv.weight.device) / 255.0)
        for level in self.levels:
            x = x + level(x)
        x = self.norm(self.conv(x))
        x = self.group(self.up(x + self.last(x.relu())))
        found = self.linear(x.mean(dim=(2, 3))).float()
        return found[:, None, :4], found[:, 4:].sigmoid(), torch.ones(images.shape[0], dtype=torch.int32)


RANDOM = torch.Generator().manual_seed(1)
CANVASES = torch.randint(0, 256, (2, 3, 12, 12), dtype=torch.uint8, generator=RANDOM)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_products_are_converted_and_answers_change_by_rounding(dtype: str) -> None:
    net: Any = Net().eval()
    before = copy.deepcopy(net.state_dict())
    reduced: Any = in_precision(net, dtype)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    scripted: Any = script_and_freeze(reduced, ["detect"])
    with torch.no_grad():
        wanted = net.detect(CANVASES, 0.0, 0.5)
        for found in (reduced.detect(CANVASES, 0.0, 0.5), scripted.detect(CANVASES, 0.0, 0.5)):
            for value, exact in zip(found[:2], wanted[:2], strict=True):
                assert value.dtype == torch.float32
                error = float((value - exact).abs().max())
                assert 0 < error < 8 * torch.finfo(getattr(torch, dtype)).eps
    seen: dict[str, list[torch.dtype]] = {}
    for node in scripted.detect.inlined_graph.nodes():
        kind, inputs = node.kind().removeprefix("aten::"), list(node.inputs())
        if kind in ("conv2d", "_convolution", "conv_transpose2d", "linear"):
            values = [value.toIValue() for value in inputs[1:3]]
            seen.setdefault(kind, []).extend(value.dtype for value in values if isinstance(value, Tensor))
        elif kind in ("group_norm", "batch_norm"):
            seen.setdefault(kind, []).append(inputs[1 if kind == "batch_norm" else 2].toIValue().dtype)
    assert len(seen["batch_norm"]) == 1  # the norm without a convolution before it
    assert set(seen.pop("batch_norm") + seen.pop("group_norm")) == {torch.float32}
    assert seen.keys() == {"conv2d", "conv_transpose2d", "linear"}
    assert {value for dtypes in seen.values() for value in dtypes} == {getattr(torch, dtype)}


def test_float32_only_folds_batch_norms() -> None:
    net: Any = Net().eval()
    folded: Any = in_precision(net, "float32")
    assert [type(layer) for layer in folded.first] == [nn.Conv2d, nn.Identity, nn.ReLU]
    assert folded.levels[0][0] is not folded.levels[1][0]
    with torch.no_grad():
        found, wanted = folded.detect(CANVASES, 0.0, 0.5), net.detect(CANVASES, 0.0, 0.5)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
