"""Calls of every operator with one wrong argument: an error that names it, or a result that is right.

Under `make sanitize` a read or write beyond a tensor ends the process; `make sanitize-fuzz` makes more calls.
The last call of a process is in the file `call` of its test's temporary folder.
"""

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from op_fuzz import Call, calls, registered, valid_arguments
from programs import memory_limit
from torch import Tensor

OPS = registered()
CALLS = 400  # of an operator, for each seed
# Operators that take little but a device or the names of files.
SMALL = ("lensbox_jpeg::decoder_fault", "lensbox_jpeg::read_files")
WITHOUT_CUDA = ("lensbox_jpeg::decode_luma", "lensbox_jpeg::decode_rgb")
COMPOSED = ("lensbox::restore_boxes", "lensbox::restore_points", "lensbox::geometry_of_windows")
ERRORS = (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError)


def test_every_operator_has_valid_arguments() -> None:
    assert sorted(OPS) == sorted(valid_arguments())
    for name, makers in valid_arguments().items():
        for make in makers:
            with pytest.raises(NotImplementedError) if name in WITHOUT_CUDA else contextlib.nullcontext():
                OPS[name](*make())


@pytest.fixture(autouse=True)
def _bounded_memory() -> Iterator[None]:
    """Let tensors of more than 4 GiB fail at once, on machines that have the memory, too."""
    with memory_limit(4 << 30):
        yield


@contextlib.contextmanager
def uninitialized_memory_of_nan() -> Iterator[None]:
    """Fill the memory of new tensors with NaN, or with the largest integer."""
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def outcome(call: Call) -> list[Any] | Exception:
    """Return the results of a call, or its error."""
    try:
        result = call.op(*call.arguments)
    except ERRORS as error:
        return error
    return list(result) if isinstance(result, (tuple, list)) else [result]


def bits(values: list[Any]) -> list[Any]:
    """Return results as they lie in memory, so that NaN equals NaN."""
    return [
        (value.dtype, value.shape, value.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
        if isinstance(value, Tensor) and value.device.type == "cpu"
        else repr(value)
        for value in values
    ]


def gradients(call: Call, results: list[Any], upstream: float) -> list[Any]:
    """Return the gradients of the arguments that want one."""
    leaves = [one for one in call.arguments if isinstance(one, Tensor) and one.requires_grad]
    outputs = [one for one in results if isinstance(one, Tensor) and one.grad_fn is not None]
    if not leaves or not outputs or outputs[0].device.type != "cpu":
        return []
    try:
        found = torch.autograd.grad(outputs[0], leaves, torch.full_like(outputs[0], upstream), True)
    except RuntimeError as error:
        if "derivative" in str(error) or "not implemented" in str(error):
            return []
        raise AssertionError(f"{call}: {error}") from error
    return list(found)


def check_error(call: Call, error: Exception) -> None:
    text = str(error)
    assert "INTERNAL ASSERT" not in text, f"{call}: {text}"
    assert text.strip(), call


def check_indices(call: Call, results: list[Any]) -> None:
    """Check results that are indices of arguments: padded_nms and merge_tiles."""
    name = call.op._schema.name
    if name == "lensbox_runtime::merge_tiles":
        (kept,) = results
        assert kept.unique().numel() == kept.numel(), call
        assert ((kept >= 0) & (kept < len(call.arguments[1]))).all(), call
    elif name == "lensbox::padded_nms" and results[2].device.type == "cpu":
        (_, scores, indices, counts), per_image = results, call.arguments[1].shape[1]
        assert ((indices >= -1) & (indices < per_image)).all(), call
        assert ((counts >= 0) & (counts <= min(per_image, indices.shape[1]))).all(), call
        assert ((indices >= 0).sum(1) == counts).all(), call
        assert scores.shape == indices.shape, call


def check_like_meta(call: Call, results: list[Any]) -> None:
    """Compare shapes and dtypes with those that tracers are told."""
    if not call.op._schema.name.startswith("lensbox::"):
        return

    def to_meta(value: Any) -> Any:
        if isinstance(value, list):
            return [to_meta(one) for one in value]
        return value.detach().to("meta") if isinstance(value, Tensor) else value

    traced = outcome(Call(call.op, [to_meta(value) for value in call.arguments], call.change))
    assert not isinstance(traced, Exception), f"{call}: passes on the CPU, but not on meta: {traced}"
    assert [(one.shape, one.dtype) for one in traced] == [(one.shape, one.dtype) for one in results], call


def check_call(make: Any) -> bool:
    """Make a call twice, in memory of two patterns. Return whether its arguments passed the checks."""
    call = make()
    results = outcome(call)
    if isinstance(results, Exception):
        check_error(call, results)
        return False
    upstream = random.Random(call.change).choice([1.0, -2.5, float("inf"), float("nan"), 3e38])
    if call.valid is not None:
        expected = outcome(Call(call.op, list(call.valid), ""))
        assert not isinstance(expected, Exception)
        assert bits(results) == bits(expected), f"{call}: other results than for other strides"
    found = [*results, *gradients(call, results, upstream)]
    check_indices(call, results)
    check_like_meta(call, results)
    if call.op._schema.name not in COMPOSED:
        with uninitialized_memory_of_nan():
            again = make()
            repeated = outcome(again)
            assert not isinstance(repeated, Exception), f"{call}: {repeated}"
            repeated += gradients(again, repeated, upstream)
        assert bits(found) == bits(repeated), f"{call}: the result depends on memory that nothing wrote"
    return True


# `make sanitize` has the first seed; the others are for changes below ops/csrc.
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in range(1, 6))]
)
@pytest.mark.parametrize("name", OPS)
def test_one_wrong_argument(name: str, seed: int, tmp_path: Path) -> None:
    count = CALLS // (10 if name in (*SMALL, *WITHOUT_CUDA) else 1 if seed else 2)
    passed = 0
    with (tmp_path / "call").open("w", buffering=1) as note:
        for number, make in enumerate(calls(name, OPS[name], count, seed)):
            note.seek(0)
            note.write(f"{name}, seed {seed}, call {number} of {count}\n")
            passed += check_call(make)
    print(f"\n{name}: {passed} of {count} calls passed the checks", end="")
    if name not in WITHOUT_CUDA:
        assert passed > count // 4, "most calls must get beyond the checks"
