"""Convert a detector's network to float16 or bfloat16 in PyTorch, before a format compiles the detector."""

import copy
from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from lensbox.common.errors import ArtifactError
from lensbox.model import Detector
from lensbox.model.protocol_check import answer_faults, answer_of

REDUCED = ("float16", "bfloat16")

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_OTHER_NORMS = (nn.GroupNorm, nn.LayerNorm, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)


class _Converted(nn.Module):
    """A layer that computes in `dtype`, with a cast where its input enters. The result stays in `dtype`."""

    def __init__(self, layer: Any, dtype: torch.dtype) -> None:
        super().__init__()
        self.layer, self.dtype = layer.to(dtype), dtype
        self.weight = layer.weight  # a detector may read its device or dtype

    def forward(self, x: Tensor) -> Tensor:
        converted: Tensor = self.layer(x.to(self.dtype))
        return converted


def in_precision(detector: Detector, dtype: str, batch: int | None = None) -> Detector:
    """Return a copy of the detector with folded batch norms, and with its network in `dtype` if reduced.

    Convolutions and linear layers compute in `dtype`, normalisations in float32. The results stay in `dtype`
    until the detector's code converts them, as in `boxes.float()`. Parameters that are not in such layers
    stay in float32. Raises ArtifactError if `detect` fails in this precision, or if its results are not
    float32. detector: on the CPU, in eval mode. batch: the batch size that it takes; None for any.
    """
    network = copy.deepcopy(cast(nn.Module, detector))
    _fold_batch_norms(network)
    converted = cast(Detector, network)
    if dtype in REDUCED:
        _convert(network, getattr(torch, dtype))
        _require_float32_results(converted, dtype, batch or 1)
    return converted


def _fold_batch_norms(network: nn.Module) -> None:
    """Fold each batch norm into the convolution before it in an `nn.Sequential`, in float32, in place.

    Folded later, the weights would be rounded twice. In float32, the compilers fold the other batch norms.
    """
    for parent in network.modules():
        if not isinstance(parent, nn.Sequential):
            continue
        for (first, layer), (second, norm) in pairwise(list(parent.named_children())):
            if type(layer) in _CONVOLUTIONS and type(norm) in _BATCH_NORMS and norm.running_mean is not None:
                setattr(parent, first, fuse_conv_bn_eval(cast(Any, layer), cast(Any, norm)))
                setattr(parent, second, nn.Identity())


def _convert(network: nn.Module, dtype: torch.dtype) -> None:
    converted: dict[nn.Module, nn.Module] = {}  # a layer may have several places
    for parent in list(network.modules()):
        if isinstance(parent, nn.MultiheadAttention):  # calls functions with the weights of its layers
            continue
        for name, layer in list(parent.named_children()):
            if isinstance(layer, (*_CONVOLUTIONS, *_TRANSPOSED, nn.Linear)):
                if layer.bias is None and isinstance(layer, _CONVOLUTIONS):
                    # torch.jit.freeze folds a batch norm into a bias, and would make one in float32.
                    layer.bias = nn.Parameter(torch.zeros(layer.out_channels), requires_grad=False)
                setattr(parent, name, converted.setdefault(layer, _Converted(layer, dtype)))
            elif isinstance(layer, _OTHER_NORMS):
                setattr(parent, name, converted.setdefault(layer, _Converted(layer, torch.float32)))


def _require_float32_results(detector: Detector, dtype: str, batch: int) -> None:
    canvases = torch.zeros(batch, *detector.specification.canvas_shape, dtype=torch.uint8)
    try:
        faults = answer_faults(answer_of(detector, canvases, 0.0, 0.5), detector.specification, batch)
    except (RuntimeError, ValueError) as error:  # an operator that does not take this dtype, for example
        faults = [str(error).strip().splitlines()[0]]
    if faults:
        raise ArtifactError("\n  ".join([f"the detector cannot be exported in {dtype}:", *faults]))
