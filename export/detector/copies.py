"""Copy a detector for an export: without hooks or compilation, and in float16 or bfloat16."""

import contextlib
import copy
import logging
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize, prune, remove_spectral_norm, remove_weight_norm

from lensbox.common.errors import ArtifactError
from lensbox.export.detector.passes import CONVOLUTIONS, fold_modules
from lensbox.model import Detector
from lensbox.model.protocol_check import answer_faults, answer_of
from lensbox.model.user_errors import location

_logger = logging.getLogger(__name__)

REDUCED = ("float16", "bfloat16")

_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_OTHER_NORMS = (nn.GroupNorm, nn.LayerNorm, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
_IN_FLOAT32 = (*_OTHER_NORMS, nn.RMSNorm, nn.PReLU)  # their weights must have the dtype of their input
_CHILDREN, _ALL = 1, 2  # of a module, stay in float32


def plain_copy(detector: nn.Module) -> nn.Module:
    """Return a copy in eval mode without `torch.compile`, and with parameters in place of computed weights.

    The values stay: no format holds the hooks of `weight_norm`, `spectral_norm`, pruning and
    parametrizations. Raise ArtifactError for modules that cannot be copied.
    """
    computed = {  # with a gradient, such as the weight of the old `weight_norm`: torch copies no such tensors
        id(value): value.detach().clone()
        for part in detector.modules()
        for value in vars(part).values()
        if isinstance(value, Tensor) and not value.is_leaf
    }
    try:
        copied = copy.deepcopy(detector, computed).eval()
    except Exception as error:  # whatever the user's members raise
        raise ArtifactError(
            f"the detector cannot be exported, as copy.deepcopy fails: {error}. Detach tensors that it keeps"
        ) from error
    copied = _uncompiled(copied)
    for part in list(copied.modules()):
        for name, child in list(part.named_children()):
            if (inner := _uncompiled(child)) is not child:
                setattr(part, name, inner)
    for part in list(copied.modules()):
        if parametrize.is_parametrized(part):
            # The class of a parametrized module is its own, but the copy shares the class with the original.
            kind = type(part)
            part.__class__ = type(kind.__name__, kind.__bases__, dict(vars(kind)))
            for name in list(cast(nn.ModuleDict, part.parametrizations)):
                parametrize.remove_parametrizations(part, name)
        for name in [name.rpartition("_")[0] for name, _ in part.named_parameters(recurse=False)]:
            for remove in (remove_weight_norm, remove_spectral_norm, prune.remove):
                with contextlib.suppress(ValueError):  # not this one
                    remove(part, name)
    return copied


def _uncompiled(module: nn.Module) -> nn.Module:
    """Return the module inside of `torch.compile`, or the module itself."""
    return dict(module.named_children()).get("_orig_mod", module)


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
    fold_modules(folded)
    if dtype not in REDUCED:
        return cast(Detector, folded)
    black = torch.zeros(batch or 1, *detector.specification.canvas_shape, dtype=torch.uint8)
    kept: dict[str, int] = {}
    while True:
        network = copy.deepcopy(folded)
        _convert(network, getattr(torch, dtype), kept)
        try:
            answer = answer_of(network, black, 0.0, 0.5)
            faults = answer_faults(answer, detector.specification, len(black))
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


def _convert(network: nn.Module, dtype: torch.dtype, kept: Mapping[str, int]) -> None:
    """Convert layers in place. kept: paths of modules whose children, or all of whose layers, stay."""
    converted: dict[nn.Module, nn.Module] = {}  # a layer may have several places
    for place, parent in list(network.named_modules()):
        # MultiheadAttention calls functions with the weights of its layers.
        levels_above = [level for path, level in kept.items() if f"{place}.".startswith(f"{path}.")]
        if isinstance(parent, nn.MultiheadAttention) or place in kept or _ALL in levels_above:
            continue
        if isinstance(parent, nn.TransformerEncoderLayer):
            parent.activation_relu_or_gelu = 0  # the fast path takes all weights in one dtype
        for name, layer in list(parent.named_children()):
            if (f"{place}.{name}" if place else name) in kept:
                continue
            if isinstance(layer, (*CONVOLUTIONS, *_TRANSPOSED, nn.Linear)):
                if layer.bias is None and isinstance(layer, CONVOLUTIONS):
                    # torch.jit.freeze folds a batch norm into a bias, and would make one in float32.
                    layer.bias = nn.Parameter(torch.zeros(layer.out_channels), requires_grad=False)
                setattr(parent, name, converted.setdefault(layer, _Converted(layer, dtype)))
            elif isinstance(layer, _IN_FLOAT32):
                setattr(parent, name, converted.setdefault(layer, _Converted(layer, torch.float32)))
    for place in filter(None, kept):
        network.get_submodule(place).register_forward_pre_hook(_to_float32, with_kwargs=True)


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
