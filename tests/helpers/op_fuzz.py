"""Calls of ops with one wrong argument: begin with valid arguments and change one of them.

A `Call` is made from a random generator alone, so that a seed repeats it. `test_fuzz.py` makes the calls.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from op_samples import RUNTIME_SAMPLES, SAMPLES, Arguments, Sample, make_inputs
from torch import Tensor

NAMESPACES = ("lensbox", "lensbox_jpeg", "lensbox_runtime")

INTEGERS = [0, 1, 2, 3, 7, 63, 255, 256, 4096, 1 << 14, 1 << 17, (1 << 31) - 1, 1 << 31]
INTEGERS += [1 << 32, 1 << 40, 1 << 61, 1 << 62, (1 << 63) - 1]
INTEGERS += [-one for one in INTEGERS] + [-(1 << 63)]
NUMBERS = [0.0, 1.0, 0.5, 1e-18, 1e18, 1e-300, 5e-324, 1e300, float("inf"), float("nan")]
NUMBERS += [-one for one in NUMBERS]
FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
DTYPES = [*FLOATS, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool, torch.int8, torch.uint16]
DTYPES += [torch.complex64, torch.float8_e4m3fn]
WORDS = ["", "nearest", "lanczos", "stretch", "crop", "gray", "bgr", "Gray", "\0", "ä" * 99, "%s%n" * 300]
WORDS += ["opencv_linear", "ultralytics", "/", "/dev/null", "/nowhere", "pyproject.toml"]


@dataclass
class Call:
    """A call of an op.

    change: which argument differs from a valid one, and how. valid: the valid arguments, if the change keeps
    all numbers, so that both give the same results.
    """

    op: torch._ops.OpOverload
    arguments: list[Any]
    change: str
    valid: Arguments | None = None

    def __str__(self) -> str:
        return f"{self.op._schema.name}: {self.change}; {[described(value) for value in self.arguments]}"


def described(value: Any) -> str:
    if isinstance(value, Tensor):
        text = f"{value.dtype} {list(value.shape)} on {value.device}"
        return text + f" strides {list(value.stride())}" if value.layout == torch.strided else text
    if isinstance(value, list):
        return f"[{', '.join(map(described, value[:9]))}{', ...' * (len(value) > 9)}]"
    return repr(value)[:99]


def registered() -> dict[str, torch._ops.OpOverload]:
    """Return every operator of the library by its name."""
    found = {}
    for full in torch._C._dispatch_get_all_op_names():
        namespace, _, name = full.partition("::")
        if namespace in NAMESPACES:
            name, _, overload = name.partition(".")
            found[full] = getattr(getattr(getattr(torch.ops, namespace), name), overload or "default")
    return found


def _arguments_of(sample: Sample) -> Arguments:
    return sample.arguments(make_inputs(torch.device("cpu"), images=3, slots=11))


def valid_arguments() -> dict[str, list[Callable[[], Arguments]]]:
    """Return functions that make valid arguments, for each operator."""
    found: dict[str, list[Callable[[], Arguments]]] = {}
    for sample in SAMPLES:
        found.setdefault(f"lensbox::{sample.op}", []).append(partial(_arguments_of, sample))
    return {**found, **RUNTIME_SAMPLES}


Change = Callable[[Tensor, random.Random], Tensor]


def _transposed(tensor: Tensor, chance: random.Random) -> Tensor:
    dims = chance.sample(range(tensor.dim()), tensor.dim())
    return tensor.permute(dims).contiguous().permute([dims.index(d) for d in range(tensor.dim())])


def _moved(tensor: Tensor, chance: random.Random) -> Tensor:
    offset = chance.choice([1, 2, 3, 5])
    return torch.cat([tensor.new_zeros(offset), tensor.flatten()])[offset:].view(tensor.shape)


def _strided_beyond(tensor: Tensor, _chance: random.Random) -> Tensor:
    """Give dimensions of size 1, and all of an empty tensor, strides that nothing may be computed with."""
    sides = zip(tensor.shape, tensor.stride(), strict=True)
    strides = [(1 << 62) - 1 if n <= 1 or tensor.numel() == 0 else s for n, s in sides]
    return tensor.as_strided(tensor.shape, strides)


def _with_number(tensor: Tensor, chance: random.Random) -> Tensor:
    """Set one number, or all, to an extreme one."""
    changed = tensor.detach().clone(memory_format=torch.contiguous_format)
    if tensor.is_floating_point():
        limits = torch.finfo(tensor.dtype)
        value: float = chance.choice([*NUMBERS, limits.max, limits.min, limits.tiny, limits.eps])
    elif tensor.dtype == torch.bool or tensor.is_complex():
        value = chance.choice([0, 1])
    else:
        lowest, highest = torch.iinfo(tensor.dtype).min, torch.iinfo(tensor.dtype).max
        value = chance.choice([n for n in INTEGERS if lowest <= n <= highest] + [lowest, highest])
    extreme = torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else torch.int64)
    first = chance.randrange(changed.numel() + 1)
    at = slice(None) if chance.random() < 0.3 else slice(first, first + 1)
    changed.view(-1)[at] = extreme.to(tensor.dtype)
    return changed


def _shuffled(tensor: Tensor, chance: random.Random) -> Tensor:
    order = chance.sample(range(tensor.numel()), tensor.numel())
    return tensor.flatten()[torch.tensor(order, dtype=torch.int64)].view(tensor.shape)


def _expanded(tensor: Tensor, chance: random.Random) -> Tensor:
    dim = chance.randrange(max(1, tensor.dim()))
    return tensor.narrow(dim, 0, 1).expand(tensor.shape) if tensor.dim() and tensor.shape[dim] else tensor


def _resized(tensor: Tensor, chance: random.Random) -> Tensor:
    """Change the length of one dimension."""
    if tensor.dim() == 0:
        return tensor.expand(chance.choice([0, 1, 2]))
    dim = chance.randrange(tensor.dim())
    size = tensor.shape[dim]
    wanted = chance.choice([0, 1, max(0, size - 1), size + 1, 2 * size, 65])
    if size == 0:
        return tensor.new_zeros([wanted if d == dim else n for d, n in enumerate(tensor.shape)])
    return tensor.index_select(dim, torch.arange(wanted) % size)


def _reshaped(tensor: Tensor, chance: random.Random) -> Tensor:
    shapes: list[tuple[int, ...]] = [(1, *tensor.shape), (*tensor.shape, 1), (tensor.numel(),)]
    shapes += [(*([1] * 9), *tensor.shape)]
    first = tensor[0] if tensor.dim() and len(tensor) else tensor
    kinds = [first, tensor.new_zeros([]), tensor.new_ones(4), *(tensor.reshape(shape) for shape in shapes)]
    return chance.choice(kinds)


def _emptied(tensor: Tensor, chance: random.Random) -> Tensor:
    """Set the length of a dimension, or of one more, to 0."""
    at = chance.randrange(tensor.dim() + 1)
    return tensor.new_zeros([*tensor.shape[:at], 0, *tensor.shape[at + 1 :]])


KEEP_NUMBERS: dict[str, Change] = {
    "transposed": _transposed,
    "with gaps": lambda t, chance: torch.stack([t] * chance.choice([2, 3]), -1)[..., chance.choice([0, 1])],
    "moved": _moved,
    "strided beyond": _strided_beyond,
    "trained": lambda t, _: t.detach().requires_grad_() if t.is_floating_point() else t,
    "a negated view": lambda t, _: torch._neg_view(-t) if t.dtype != torch.bool else t,
}
OTHER_DTYPE: dict[str, Change] = {
    "other dtype": lambda t, chance: t.to(chance.choice(FLOATS if t.is_floating_point() else DTYPES))
}
VALUES: dict[str, Change] = {
    "with a number": _with_number,
    "with another number": _with_number,  # more often
    "shuffled": _shuffled,
    "nested in itself": lambda t, _: t.as_strided(t.shape, [1] * t.dim()),  # overlapping rows
    "expanded": _expanded,
}
SIZES: dict[str, Change] = {
    "resized": _resized,
    "resized again": _resized,
    "emptied": _emptied,
    "emptied again": _emptied,
    "reshaped": _reshaped,
    "of any dtype": lambda t, chance: t.to(chance.choice(DTYPES)),
    "elsewhere": lambda t, _: t.to("meta"),
    "sparse": lambda t, _: t.to_sparse() if t.dim() else t,
}


def _changed_tensor(tensor: Tensor, chance: random.Random, others: Sequence[Tensor]) -> tuple[str, Any]:
    if others and chance.random() < 0.05:
        return "another argument", chance.choice(others)
    changes = chance.choices([KEEP_NUMBERS | OTHER_DTYPE, VALUES, SIZES], [5, 4, 3])[0]
    name = chance.choice([*changes])
    return name, changes[name](tensor, chance)


# --- changes of other arguments ---


def _changed_list(values: list[Any], chance: random.Random, others: Sequence[Tensor]) -> tuple[str, Any]:
    at = chance.randrange(len(values)) if values else 0
    how = chance.choice(["empty", "shorter", "longer", "all of", "all of", *["one of"] * 5])
    how = how if values else "longer"
    if how == "empty":
        return how, []
    if how == "shorter":
        return how, values[:at] + values[at + 1 :]
    if how == "longer":
        return how, [*values, values[at] if values else 0]
    name, value = changed(values[at], chance, others)
    if how == "all of":
        return "all of them", [value] * len(values)
    return f"one of them: {name}", [*values[:at], value, *values[at + 1 :]]


def changed(value: Any, chance: random.Random, others: Sequence[Tensor]) -> tuple[str, Any]:
    """Return the name of a change and the changed value."""
    if isinstance(value, Tensor):
        return _changed_tensor(value, chance, others)
    if isinstance(value, list):
        return _changed_list(value, chance, others)
    if isinstance(value, bool):
        return "flag", not value
    if isinstance(value, int):
        return "integer", chance.choice(
            [value + chance.choice([-1, 1, 2]), 2 * value, *chance.choices(INTEGERS, k=2)]
        )
    if isinstance(value, float):
        return "number", chance.choice([value * 1.5, value / 2, *NUMBERS])
    if isinstance(value, str):
        return "word", chance.choice(WORDS)
    if isinstance(value, torch.dtype) or value is None:
        return "kind", chance.choice([None, *DTYPES, [0.5], [0.1, 0.2, 0.3], others[0] if others else None])
    return "device", torch.device(chance.choice(["cpu", "meta", "cuda"]))


def calls(name: str, op: torch._ops.OpOverload, count: int, seed: int) -> list[Callable[[], Call]]:
    """Return functions that make `count` calls of an operator."""
    makers = valid_arguments()[name]

    def make(number: int) -> Call:
        chance = random.Random(f"{name} {seed} {number}")
        torch.default_generator.manual_seed(chance.randrange(1 << 31))  # as in conftest.py
        given = chance.choice(makers)()
        arguments = list(given)
        tensors = [one for value in arguments for one in (value if isinstance(value, list) else [value])]
        others = [one for one in tensors if isinstance(one, Tensor)]
        position = chance.randrange(len(arguments))
        if arguments[position] is None or chance.random() > 0.04:
            how, arguments[position] = changed(arguments[position], chance, others)
        else:
            how, arguments[position] = "None", None
        valid = tuple(given) if how.removeprefix("one of them: ") in KEEP_NUMBERS else None
        return Call(op, arguments, f"{op._schema.arguments[position].name}: {how}", valid)

    return [partial(make, number) for number in range(count)]
