"""Calls of ops with one wrong argument: begin with valid arguments and change one of them.

A `Call` is made from a random generator alone, so that a seed repeats it. `test_fuzz.py` makes the calls.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from op_samples import SAMPLES, Arguments, Sample, make_inputs
from runtime_samples import RUNTIME_SAMPLES
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


# --- changes of a tensor that keep its numbers ---


def _transposed(tensor: Tensor, chance: random.Random) -> Tensor:
    if tensor.dim() < 2:
        return tensor
    dims = chance.sample(range(tensor.dim()), tensor.dim())
    return tensor.permute(dims).contiguous().permute([dims.index(d) for d in range(tensor.dim())])


def _with_gaps(tensor: Tensor, chance: random.Random) -> Tensor:
    return torch.stack([tensor] * chance.choice([2, 3]), -1)[..., chance.choice([0, 1])]


def _moved(tensor: Tensor, chance: random.Random) -> Tensor:
    offset = chance.choice([1, 2, 3, 5])
    return torch.cat([tensor.new_zeros(offset), tensor.flatten()])[offset:].view(tensor.shape)


def _strided_beyond(tensor: Tensor, _chance: random.Random) -> Tensor:
    """Give dimensions of size 1, and all of an empty tensor, strides that nothing may be computed with."""
    far = (1 << 62) - 1
    strides = [
        far if n <= 1 or tensor.numel() == 0 else s
        for n, s in zip(tensor.shape, tensor.stride(), strict=True)
    ]
    return tensor.as_strided(tensor.shape, strides)


def _trained(tensor: Tensor, _chance: random.Random) -> Tensor:
    return tensor.detach().requires_grad_() if tensor.is_floating_point() else tensor


def _negated_view(tensor: Tensor, _chance: random.Random) -> Tensor:
    return torch._neg_view(-tensor) if tensor.dtype != torch.bool else tensor


def _other_dtype(tensor: Tensor, chance: random.Random) -> Tensor:
    return tensor.to(chance.choice(FLOATS if tensor.is_floating_point() else DTYPES))


LAYOUTS = [_transposed, _with_gaps, _moved, _strided_beyond, _trained, _negated_view, _other_dtype]
KEEP_NUMBERS = [change.__name__ for change in LAYOUTS if change is not _other_dtype]

# --- changes of a tensor's numbers ---


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
    at = (
        slice(None)
        if chance.random() < 0.3
        else slice(first := chance.randrange(changed.numel() + 1), first + 1)
    )
    changed.view(-1)[at] = extreme.to(tensor.dtype)
    return changed


def _shuffled(tensor: Tensor, chance: random.Random) -> Tensor:
    order = list(range(tensor.numel()))
    chance.shuffle(order)
    return tensor.flatten()[torch.tensor(order, dtype=torch.int64)].view(tensor.shape)


def _nested_in_itself(tensor: Tensor, _chance: random.Random) -> Tensor:
    """Return overlapping rows: each begins one number behind the one before it."""
    return tensor.as_strided(tensor.shape, [1] * tensor.dim())


def _expanded(tensor: Tensor, chance: random.Random) -> Tensor:
    dim = chance.randrange(max(1, tensor.dim()))
    return tensor.narrow(dim, 0, 1).expand(tensor.shape) if tensor.dim() and tensor.shape[dim] else tensor


VALUES = [_with_number, _with_number, _shuffled, _nested_in_itself, _expanded]

# --- changes of a tensor's size, device or kind ---


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


def _of_any_dtype(tensor: Tensor, chance: random.Random) -> Tensor:
    return tensor.to(chance.choice(DTYPES))


def _elsewhere(tensor: Tensor, _chance: random.Random) -> Tensor:
    return tensor.to("meta")


def _sparse(tensor: Tensor, _chance: random.Random) -> Tensor:
    return tensor.to_sparse() if tensor.dim() else tensor


SIZES = [_resized, _resized, _emptied, _emptied, _reshaped, _of_any_dtype, _elsewhere, _sparse]


def _changed_tensor(tensor: Tensor, chance: random.Random, others: Sequence[Tensor]) -> tuple[str, Any]:
    if others and chance.random() < 0.05:
        return "another argument", chance.choice(others)
    kinds = chance.choices([LAYOUTS, VALUES, SIZES], [5, 4, 3])[0]
    change = chance.choice(kinds)
    return change.__name__, change(tensor, chance)


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
    return f"{how} them {name}", [*values[:at], value, *values[at + 1 :]]


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
        torch.manual_seed(chance.randrange(1 << 31))
        given = chance.choice(makers)()
        arguments = list(given)
        tensors = [one for value in arguments for one in (value if isinstance(value, list) else [value])]
        others = [one for one in tensors if isinstance(one, Tensor)]
        position = chance.randrange(len(arguments))
        if arguments[position] is None or chance.random() > 0.04:
            how, arguments[position] = changed(arguments[position], chance, others)
        else:
            how, arguments[position] = "None", None
        valid = tuple(given) if how.rpartition(" ")[2] in KEEP_NUMBERS else None
        return Call(op, arguments, f"{op._schema.arguments[position].name}: {how}", valid)

    return [partial(make, number) for number in range(count)]
