"""Copy a detector, with parameters in place of weights that hooks compute."""

import contextlib
import copy
from typing import cast

from torch import Tensor, nn
from torch.nn.utils import parametrize, prune, remove_spectral_norm, remove_weight_norm

from lensbox.common.errors import ArtifactError


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
