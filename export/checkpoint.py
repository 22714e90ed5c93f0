"""The weights of a module, and tensors of a checkpoint that may be them."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

State = dict[str, Any]  # tensors, and the values of `get_extra_state`

# Parts that wrappers insert into names: DDP and AveragedModel, torch.compile, FSDP, activation checkpointing.
_WRAPPERS = ("module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
_ROOT = "."


class Target:
    """The detector, or the member that holds all of its parameters. path: of the member, "" for the detector.

    state: the tensors that weights must give. parameters: names in the order of `nn.Module.parameters`.
    """

    def __init__(self, path: str, module: nn.Module) -> None:
        self.path, self.module = path, module
        self.state: State = dict(module.state_dict())
        self.parameters = [name for name, _ in module.named_parameters()]
        trained = [name for name, value in module.named_parameters() if value.requires_grad]
        self.orders = [self.parameters] + ([trained] if len(trained) < len(self.parameters) else [])
        every = {name for name, _ in module.named_parameters(remove_duplicate=False)}
        self.buffers = {name for name in self.state if name not in every}
        self.names = {_unwrapped(name.split(".")): name for name in self.state}
        # Averages that are buffers of a module have names without dots.
        self.flat = {re.sub(r"[._]", "", name): name for name in self.parameters}

    def name_of(self, parts: Sequence[str]) -> str | None:
        """Return the tensor that a name of a checkpoint means."""
        if parts[0] in _WRAPPERS and len(parts) > 1:
            return None  # part of the prefix
        return self.names.get(_unwrapped(parts)) or (
            self.flat.get(parts[0].replace("_", "")) if len(parts) == 1 else None
        )

    def takes(self, name: str, value: Any) -> bool:
        """Return whether a value has the shape of the tensor of this name."""
        own = self.state.get(name)
        if not isinstance(own, Tensor) or not isinstance(value, Tensor):
            return name in self.state and isinstance(own, Tensor) == isinstance(value, Tensor)
        if value.is_meta or value.layout != own.layout:
            return False
        return is_lazy(own) or own.shape == value.shape

    @cached_property
    def _memory(self) -> dict[str, tuple[Any, ...]]:
        """The place of each tensor in memory: names with the same place are one tensor."""
        return {
            name: (value.untyped_storage().data_ptr(), value.storage_offset(), value.shape, value.stride())
            for name, value in self.state.items()
            if isinstance(value, Tensor)
            and not (is_lazy(value) or value.is_meta or value.layout != torch.strided or not value.numel())
        }

    def lacking(self, state: State) -> list[str]:
        """Return the names that a state lacks. Tensors of a name that the state has may be missing.

        `safetensors.torch.save_model` writes one of several names for one tensor, and the whole of views.
        """
        memory = self._memory
        given = {memory[name] for name in state if name in memory}
        whole = {
            memory[name][0]
            for name in state
            if name in memory
            and self.state[name].numel() * self.state[name].element_size()
            == self.state[name].untyped_storage().nbytes()
        }
        return [
            name
            for name in self.state
            if name not in state
            and not _counts_batches(name)
            and not (name in memory and (memory[name] in given or memory[name][0] in whole))
        ]

    def torn(self, state: State) -> tuple[str, str] | None:
        """Return two names of one tensor for which a state has different values."""
        first: dict[Any, str] = {}
        for name in state:
            if name in self._memory:
                other = first.setdefault(self._memory[name], name)
                if not _same(state[name], state[other]):
                    return other, name
        return None


@dataclass(frozen=True, eq=False)
class Weights:
    """Tensors of a checkpoint for a target, by the target's names; other tensors have names of their own.

    place: keys and indices of the mapping, then the prefix of the names, if any. matched: names in the target
    whose tensors have the right shape. named: False for a list, in the order of the parameters.
    """

    place: tuple[object, ...]
    target: Target
    state: State
    matched: frozenset[str]
    named: bool = True

    @property
    def text(self) -> str:
        """The place as a dotted path."""
        return ".".join(str(part) for part in self.place).removesuffix(".") or _ROOT

    @property
    def exact(self) -> str:
        """The place as JSON, for keys that contain dots."""
        return json.dumps([part if isinstance(part, int) else str(part) for part in self.place])

    @cached_property
    def lacking(self) -> list[str]:
        """Names that are missing."""
        return self.target.lacking(self.state)

    @cached_property
    def others(self) -> list[str]:
        """Names that the target lacks, or for which it has another shape."""
        return [name for name in self.state if name not in self.matched and not _counts_batches(name)]

    @property
    def fits(self) -> bool:
        """Whether these are all tensors of the target and no others."""
        return not self.others and not self.lacking and self.target.torn(self.state) is None

    @property
    def lacks_buffers_alone(self) -> bool:
        """Whether all parameters are here, as in an average of parameters."""
        return not self.others and self.target.buffers.issuperset(self.lacking)

    @property
    def rivals(self) -> bool:
        """Whether a user may mean these weights: many of the tensors, or some and no others."""
        half = len(self.target.parameters) / 2
        return bool(self.matched) and (not self.others or len(self.matched - self.target.buffers) >= half)

    def same_as(self, other: "Weights") -> bool:
        """Return whether all tensors that the two have in common are the same to the bit."""
        mine, theirs = self._by_full_name(), other._by_full_name()
        return all(name in theirs and _same(value, theirs[name]) for name, value in mine.items())

    def _by_full_name(self) -> State:
        before = f"{self.target.path}." if self.target.path else ""
        return {before + name: self.state[name] for name in self.matched if not _counts_batches(name)}


def targets(module: nn.Module) -> list[Target]:
    """Return the module, then the members that hold all of its parameters."""
    every = {id(value) for value in module.parameters()}
    return [
        Target(path, part)
        for path, part in module.named_modules()
        if not path or (every and {id(value) for value in part.parameters()} == every)
    ]


def _unwrapped(parts: Sequence[str]) -> str:
    return ".".join(part for part in parts if part not in _WRAPPERS) or ".".join(parts)


def _counts_batches(name: str) -> bool:
    """Return whether a buffer is of no use after training; some libraries leave it out."""
    return name.rpartition(".")[2] == "num_batches_tracked"


def _same(one: Any, other: Any) -> bool:
    """Return whether two values are the same to the bit; NaN is the same as NaN."""
    if not (isinstance(one, Tensor) and isinstance(other, Tensor)):
        return type(one) is type(other)
    plain = {one.layout, other.layout} == {torch.strided} and not (one.is_meta or other.is_meta)
    if one.dtype != other.dtype or one.shape != other.shape or not plain:
        return one is other
    bits = (value.contiguous().flatten().view(torch.uint8) for value in (one, other))
    return torch.equal(*bits)
