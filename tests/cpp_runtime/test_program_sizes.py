"""The runner takes the sizes that an exported program itself takes, and refuses those that it refuses."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from runner_answers import answer, refusal
from torch import Tensor, nn
from torch.export import Dim

Shape = tuple[int, ...]


class Function(nn.Module):
    """Calls a function."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Tensor:
        return self.function(*inputs)


def differs(x: Tensor, y: Tensor) -> Tensor:
    """Take a branch by sizes, as code does that tells points from boxes."""
    return x.sin() + y.sum() if x.shape[0] == 2 * y.shape[0] else x.cos() - y.sum()


def total(*inputs: Tensor) -> Tensor:
    return torch.stack([x.sum() for x in inputs])


def checked(condition: Callable[[Any], Any]) -> Callable[[Tensor], Tensor]:
    def check(x: Tensor) -> Tensor:
        torch._check(condition(x.shape[0]))
        return x * 2

    return check


def shrunk(x: Tensor) -> Tensor:
    return nn.functional.interpolate(
        x[None, None], size=(torch.sym_int(x.shape[0] * 0.7) + 3, x.shape[1] // 2)
    )


def joined(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    return x + torch.cat([y, z])


def larger(x: Tensor, y: Tensor) -> Tensor:
    return x.new_ones(torch.sym_max(x.shape[0], y.shape[0]) - torch.sym_min(x.shape[0], 3)) * x.sum()


def halved(x: Tensor) -> Tensor:
    torch._check(x.shape[0] // 2 > 1)
    return x[: -(-x.shape[0] // 2)]


n, h = Dim("n", min=2, max=16), Dim("h", min=3, max=9)
AUTO = Dim.AUTO
# Function, shapes of the export, free sizes, shapes to try.
CASES: dict[str, tuple[Callable[..., Tensor], list[Shape], Any, list[list[Shape]]]] = {
    "2n and n, branch": (
        differs,
        [(8,), (4,)],
        ({0: 2 * n}, {0: n}),
        [[(10,), (5,)], [(10,), (4,)], [(9,), (4,)], [(34,), (17,)]],
    ),
    "2n and n, no branch": (
        total,
        [(8,), (4,)],
        ({0: 2 * n}, {0: n}),
        [[(4,), (2,)], [(10,), (4,)], [(2,), (1,)]],
    ),
    "3n+1 and 3n-1": (
        total,
        [(7,), (5,)],
        ({0: 3 * n + 1}, {0: 3 * n - 1}),
        [[(10,), (8,)], [(8,), (6,)], [(8,), (5,)], [(4,), (2,)], [(52,), (50,)]],
    ),
    "4n and 6n": (
        total,
        [(8,), (12,)],
        ({0: 4 * n}, {0: 6 * n}),
        [[(12,), (18,)], [(10,), (15,)], [(10,), (16,)]],
    ),
    "n and n-1": (total, [(8,), (7,)], ({0: n}, {0: n - 1}), [[(9,), (8,)], [(8,), (8,)], [(17,), (16,)]]),
    "8h": (
        total,
        [(32, 3)],
        ({0: 8 * h},),
        [[(40, 3)], [(16, 3)], [(80, 3)], [(40, 4)], [(24, 3)], [(72, 3)]],
    ),
    "tied": (total, [(4, 5), (5, 4)], ({0: n}, {1: n}), [[(6, 5), (5, 6)], [(6, 5), (5, 5)]]),
    "only a least": (total, [(5,)], ({0: Dim("m", min=4)},), [[(4,)], [(3,)], [(1000,)]]),
    "only a most": (total, [(5,)], ({0: Dim("m", max=7)},), [[(7,)], [(8,)], [(1,)]]),
    "a least of 2": (total, [(5,)], ({0: Dim("m", min=2)},), [[(1,)], [(2,)]]),
    "sum of sizes": (
        joined,
        [(7,), (3,), (4,)],
        ({0: AUTO}, {0: AUTO}, {0: AUTO}),
        [[(8,), (3,), (5,)], [(8,), (3,), (4,)]],
    ),
    "float ratio": (shrunk, [(8, 6)], ({0: AUTO, 1: AUTO},), [[(9, 6)], [(20, 11)], [(3, 2)]]),
    "max and min": (larger, [(5,), (4,)], ({0: AUTO}, {0: AUTO}), [[(5,), (9,)], [(9,), (2,)]]),
    "modulo": (checked(lambda size: size % 3 == 1), [(10,)], ({0: AUTO},), [[(7,)], [(8,)]]),
    "not 3": (checked(lambda size: size != 3), [(5,)], ({0: AUTO},), [[(3,)], [(4,)]]),
    "floor division": (halved, [(8,)], ({0: AUTO},), [[(4,)], [(3,)], [(9,)]]),
    "between": (checked(lambda size: size > 3), [(5,)], ({0: AUTO},), [[(4,)], [(3,)]]),
    "view": (lambda x: x.view(-1, 4) * 2, [(8, 3)], ({0: AUTO},), [[(12, 3)], [(6, 3)], [(4, 3)]]),
}


def compare(module: nn.Module, program: Path, inputs: list[Tensor], tmp_path: Path) -> bool:
    """Assert that the runner does what the loaded program does. Return whether that is a result."""
    try:
        expected = torch.export.load(program).module()(*inputs)
    except (AssertionError, RuntimeError):
        expected = None
    words: list[object] = ["run", "--program", program, "--output", tmp_path / "out.npy"]
    for index, x in enumerate(inputs):
        np.save(tmp_path / f"in{index}.npy", x.numpy())
        words += ["--input", tmp_path / f"in{index}.npy"]
    if expected is None:
        assert "must " in refusal(4, *words)
        return False
    answer(*words)
    torch.testing.assert_close(torch.from_numpy(np.load(tmp_path / "out.npy")), expected)
    return True


# Each takes an export and two processes or more: `make test` has one of each kind.
QUICK = ("2n and n, branch", "8h", "sum of sizes", "float ratio", "modulo", "between", "item")


def every(names: Iterable[str]) -> pytest.MarkDecorator:
    slow = [pytest.mark.exhaustive]
    cases = [pytest.param(name, marks=[] if name in QUICK else slow) for name in names]
    return pytest.mark.parametrize("name", cases)


@every(CASES)
def test_sizes_are_those_of_the_program(name: str, tmp_path: Path) -> None:
    function, shapes, free, tries = CASES[name]
    module, program = Function(function), tmp_path / "program.pt2"
    torch.manual_seed(0)
    exported = torch.export.export(module, tuple(map(torch.rand, shapes)), dynamic_shapes=(free,))
    torch.export.save(exported, program)
    outcomes = {compare(module, program, [torch.rand(shape) for shape in sizes], tmp_path) for sizes in tries}
    assert True in outcomes


def counted(x: Tensor, count: Tensor) -> Tensor:
    size: Any = count.item()
    torch._check_is_size(size)
    torch._check(size <= x.shape[0])
    torch._check(size % 2 == 0)
    return x.narrow(0, 0, size).sum() + x.new_ones(size).sum()


def parted(x: Tensor, counts: Tensor) -> Tensor:
    left, right = counts.tolist()
    torch._check(left >= 0)
    torch._check(right >= 0)
    torch._check(left + right == x.shape[0])
    one, other = x.split([left, right])
    difference: Tensor = one.sum() - other.sum()
    return difference


def scaled(x: Tensor, by: Tensor) -> Tensor:
    factor = by.item()
    torch._check(factor > 0.5)
    return x * factor


def some(x: Tensor, chosen: Tensor) -> Tensor:
    rows = chosen.nonzero()
    torch._check(rows.shape[0] >= 2)
    return x[rows[:, 0]].sum(0)


DATA: dict[str, tuple[Callable[..., Tensor], Tensor, list[Tensor], list[str]]] = {
    "item": (
        counted,
        torch.tensor(2),
        [torch.tensor(value) for value in (4, 0, -2, 10, 3)],
        ["item = -2", "item = 10", "mod_1 = 1"],
    ),
    "tolist": (
        parted,
        torch.tensor([3, 5]),
        [torch.tensor(value) for value in ([8, 0], [4, 5], [-1, 9])],
        ["= 9", "= -1"],
    ),
    "float": (
        scaled,
        torch.tensor(0.75),
        [torch.tensor(value) for value in (2.0, 0.5, torch.nan)],
        ["item = 0.5", "item = nan"],
    ),
    "nonzero": (some, torch.ones(8).bool(), [torch.arange(8) < count for count in (3, 1, 0)], ["= 1", "= 0"]),
}


@pytest.mark.filterwarnings("ignore:_check_is_size will be removed:FutureWarning")
@every(DATA)
def test_numbers_in_the_data_are_checked(name: str, tmp_path: Path) -> None:
    function, example, tries, messages = DATA[name]
    module, program, x = Function(function), tmp_path / "program.pt2", torch.rand(8)
    try:
        exported = torch.export.export(module, (x, example))
    except AssertionError as error:
        if "created by constraints solver" in str(error):
            pytest.skip("torch 2.11 does not export rules of a float")
        raise
    torch.export.save(exported, program)
    outcomes = [compare(module, program, [x, value], tmp_path) for value in tries]
    assert outcomes == [index < len(tries) - len(messages) for index in range(len(tries))]
    words = ["run", "--program", program, "--input", tmp_path / "in0.npy", "--input", tmp_path / "in1.npy"]
    for value, message in zip(tries[-len(messages) :], messages, strict=True):
        np.save(tmp_path / "in1.npy", value.numpy())
        assert message in refusal(4, *words)


class Nested(nn.Module):
    """Takes sizes of tensors in containers."""

    def forward(
        self, pair: dict[str, Tensor], rest: list[Tensor], *more: Tensor, flag: bool = True
    ) -> Tensor:
        if pair["b].c"].shape[0] == 2 * rest[1].shape[0] and more[1].shape[0] == rest[1].shape[0] + 1:
            return pair["b].c"].sum() + rest[1].sum() + more[1].sum()
        return pair["a"].sum()


@pytest.mark.parametrize("strict", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
def test_sizes_of_nested_inputs_are_found(strict: bool, tmp_path: Path) -> None:
    program = tmp_path / "program.pt2"
    shapes: Any = {
        "pair": {"a": None, "b].c": {0: AUTO}},
        "rest": [None, {0: AUTO}],
        "more": (None, {0: AUTO}),
        "flag": None,
    }

    def inputs(b: int, one: int, more: int) -> Any:
        first = {"a": torch.ones(2), "b].c": torch.rand(b)}
        return (first, [torch.ones(3), torch.rand(one)], torch.ones(1), torch.rand(more))

    exported = torch.export.export(
        Nested(), inputs(8, 4, 5), {"flag": False}, dynamic_shapes=shapes, strict=strict
    )
    torch.export.save(exported, program)

    def words(b: int, one: int, more: int) -> list[object]:
        first, rest, *others = inputs(b, one, more)
        line: list[object] = ["run", "--program", program, "--output", tmp_path / "out.npy"]
        for index, x in enumerate([first["a"], first["b].c"], *rest, *others]):
            np.save(tmp_path / f"in{index}.npy", x.numpy())
            line += ["--input", tmp_path / f"in{index}.npy"]
        return line

    answer(*words(12, 6, 7))
    assert "must have sizes with" in refusal(4, *words(12, 5, 6))
    assert "must have sizes with" in refusal(4, *words(12, 6, 6))
