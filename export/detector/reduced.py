"""Convert a detector's network to float16 or bfloat16 in PyTorch, before a format compiles the detector."""

import copy
import logging
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from lensbox.common.errors import ArtifactError
from lensbox.model import Detector
from lensbox.model.protocol_check import answer_faults, answer_of
from lensbox.model.user_errors import location

_logger = logging.getLogger(__name__)

REDUCED = ("float16", "bfloat16")

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_OTHER_NORMS = (nn.GroupNorm, nn.LayerNorm, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
_IN_FLOAT32 = (*_OTHER_NORMS, nn.RMSNorm, nn.PReLU)  # their weights must have the dtype of their input
_CHILDREN, _ALL = 1, 2  # of a module, stay in float32


class _Converted(nn.Module):
    """A layer that computes in `dtype`, with a cast where its input enters. The result stays in `dtype`.

    The layer's parameters and public attributes are here, too, for code that reads them, such as `eps`.
    """

    def __init__(self, layer: Any, dtype: torch.dtype) -> None:
        super().__init__()
        self.layer, self.dtype = layer.to(dtype), dtype
        for name, value in (*vars(layer).items(), *layer._parameters.items()):
            if not (name.startswith("_") or hasattr(self, name)):
                setattr(self, name, value)

    def forward(self, x: Tensor) -> Tensor:
        converted: Tensor = self.layer(x.to(self.dtype))
        return converted


def in_precision(detector: Detector, dtype: str, batch: int | None = None) -> Detector:
    """Return a copy of the detector with folded batch norms, and with its network in `dtype` if reduced.

    Convolutions and linear layers compute in `dtype`, normalisations in float32. The results stay in `dtype`
    until the detector's code converts them, as in `boxes.float()`. Parameters that are not in such layers
    stay in float32. Raise ArtifactError if `detect` fails in this precision, or if its results are not
    float32. detector: on the CPU, in eval mode. batch: the batch size that it takes; None for any.
    """
    folded = copy.deepcopy(cast(nn.Module, detector))
    _fold_batch_norms(folded)
    if dtype not in REDUCED:
        return cast(Detector, folded)
    kept: dict[str, int] = {}
    while True:
        network = copy.deepcopy(folded)
        _convert(network, getattr(torch, dtype), kept)
        try:
            faults = _faults(cast(Detector, network), batch or 1)
        except Exception as error:  # whatever the user's code raises if layers have another dtype
            path = _place(error, network)
            reason = f"{str(error).strip().splitlines()[0]}{location(error)}"
            if path is None or kept.get(path, 0) == (_ALL if path else _CHILDREN):
                faults = [f"{reason}: convert the input of the function, for example with x.float()"]
            else:
                kept[path] = kept.get(path, 0) + 1
                _logger.info("%s stays in float32: %s", path or "the detector's own code", reason)
                continue
        if faults:
            raise ArtifactError("\n  ".join([f"the detector cannot be exported in {dtype}:", *faults]))
        return cast(Detector, network)


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


def _convert(network: nn.Module, dtype: torch.dtype, kept: Mapping[str, int]) -> None:
    """Convert layers in place. kept: paths of modules whose children, or all of whose layers, stay."""
    converted: dict[nn.Module, nn.Module] = {}  # a layer may have several places
    for place, parent in list(network.named_modules()):
        # MultiheadAttention calls functions with the weights of its layers.
        if isinstance(parent, nn.MultiheadAttention) or place in kept or _ALL in _levels_above(place, kept):
            continue
        if isinstance(parent, nn.TransformerEncoderLayer):
            parent.activation_relu_or_gelu = 0  # the fast path takes all weights in one dtype
        for name, layer in list(parent.named_children()):
            if (f"{place}.{name}" if place else name) in kept:
                continue
            if isinstance(layer, (*_CONVOLUTIONS, *_TRANSPOSED, nn.Linear)):
                if layer.bias is None and isinstance(layer, _CONVOLUTIONS):
                    # torch.jit.freeze folds a batch norm into a bias, and would make one in float32.
                    layer.bias = nn.Parameter(torch.zeros(layer.out_channels), requires_grad=False)
                setattr(parent, name, converted.setdefault(layer, _Converted(layer, dtype)))
            elif isinstance(layer, _IN_FLOAT32):
                setattr(parent, name, converted.setdefault(layer, _Converted(layer, torch.float32)))
    for place in filter(None, kept):
        network.get_submodule(place).register_forward_pre_hook(_to_float32, with_kwargs=True)


def _levels_above(place: str, kept: Mapping[str, int]) -> Iterator[int]:
    return (level for path, level in kept.items() if f"{place}.".startswith(f"{path}."))


def _to_float32(module: nn.Module, args: Any, kwargs: Any) -> Any:
    """Convert the inputs of a module that stays in float32."""

    def converted(value: Any) -> Any:
        if isinstance(value, tuple | list):
            return type(value)(map(converted, value))
        return value.float() if isinstance(value, Tensor) and value.is_floating_point() else value

    return converted(args), {name: converted(value) for name, value in kwargs.items()}


def _place(error: BaseException, network: nn.Module) -> str | None:
    """Return the path of the innermost module whose code raised an error; None if there is none.

    For a converted layer this is the layer; for an attribute that it lacks, the module that reads it.
    """
    paths: dict[int, str] = {}
    for path, module in network.named_modules():
        paths.setdefault(id(module), path)
        if isinstance(module, _Converted):
            paths[id(module.layer)] = path
    found, frame = None, error.__traceback__
    while frame is not None:
        owner = frame.tb_frame.f_locals.get("self")
        reads = isinstance(owner, _Converted) and isinstance(error, AttributeError)
        if id(owner) in paths and isinstance(owner, nn.Module) and not reads:
            found = paths[id(owner)]
        frame = frame.tb_next
    return found


def _faults(detector: Detector, batch: int) -> list[str]:
    """Return the faults of the results for black canvases."""
    canvases = torch.zeros(batch, *detector.specification.canvas_shape, dtype=torch.uint8)
    return answer_faults(answer_of(detector, canvases, 0.0, 0.5), detector.specification, batch)
