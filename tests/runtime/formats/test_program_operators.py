"""Programs call the operators of one table, and those of libraries that the caller names."""

import os
from pathlib import Path

import pytest
import torch

from lensbox.runtime import op_library
from lensbox.runtime.formats import program_operators
from lensbox.runtime.formats.program_operators import (
    check_arguments,
    find_operator,
    operator_name,
    require_allowed,
)
from lensbox.runtime.formats.program_schema import GraphError

FORBIDDEN = [
    "aten::from_file", "aten::set_.source_Tensor", "aten::resize_", "aten::as_strided", "aten::empty_strided",
    "aten::rand", "aten::bernoulli", "aten::multinomial", "aten::_print", "aten::add.out", "aten::view.dtype",
    "inductor::_reinterpret_tensor", "prims::convert_element_type", "lensbox_jpeg::read_files",
    "lensbox_runtime::compare", "profiler::_record_function_enter_new", "example::unknown", "os.system",
    "_operator.attrgetter", "_operator.getitem", "torch.load", "math.__loader__", "",
]  # fmt: skip


@pytest.mark.parametrize("name", FORBIDDEN)
def test_forbids_what_is_not_in_the_table(name: str) -> None:
    with pytest.raises(GraphError, match="a program must not call"):
        find_operator(name)


def test_forbids_every_other_operator_of_torch() -> None:
    registered = set(torch._C._dispatch_get_all_op_names())
    allowed = set(program_operators._table())
    assert len(registered - allowed) > 2000
    for name in registered - allowed:
        with pytest.raises(GraphError):
            find_operator(name)


def test_the_table_holds_pure_operators_alone() -> None:
    missing = []
    for name in program_operators._table():
        try:
            found = find_operator(name)
        except GraphError as error:
            missing.append(str(error))
            continue
        if not isinstance(found, torch._ops.OpOverload):
            continue
        types = [str(argument.type) for argument in found._schema.arguments]
        assert not any("Generator" in type_ or "Storage" in type_ for type_ in types), name
        assert not any(argument.is_out for argument in found._schema.arguments), name
        writes = [
            a.name for a in found._schema.arguments if a.alias_info is not None and a.alias_info.is_write
        ]
        assert not writes or name.partition("::")[2].partition(".")[0].endswith("_") or "__i" in name, name
        if torch.Tag.nondeterministic_seeded in found.tags and "fractional" not in name:
            assert program_operators._table()[name][0] != name, f"{name} draws numbers without a rule"
    # Of other versions of torch.
    assert all("is not registered" in message for message in missing)
    assert len(missing) < 30, missing


def test_memory_without_values_is_zeros() -> None:
    for name in ("aten::empty.memory_format", "aten::empty_like", "aten::new_empty"):
        assert "zeros" in str(find_operator(name))


def test_names_are_the_tables() -> None:
    assert operator_name("torch.ops.aten.add.Tensor") == "aten::add.Tensor"
    assert operator_name("torch.ops.aten.relu.default") == "aten::relu"
    assert operator_name("_operator.add") == "_operator.add"
    for target in ("torch.ops.higher_order.cond", "torch.ops.aten", "torch.ops.a.b.c.d", "torch.ops."):
        with pytest.raises(GraphError, match="subgraph"):
            operator_name(target)


WINDOWS = {"dilation": [1], "padding": [1], "stride": [1]}
NORM = {"training": True, "running_mean": 1, "running_var": 1}


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("aten::batch_norm", {**NORM, "training": False}, NORM),
        ("aten::batch_norm", {**NORM, "running_mean": None}, {**NORM, "training": None}),
        ("aten::dropout", {"train": False}, {"train": True}),
        ("aten::scaled_dot_product_attention", {"dropout_p": 0.0}, {"dropout_p": 0.1}),
        ("aten::conv_transpose1d", {"stride": [1024]}, {"stride": [1, 1025]}),
        ("aten::im2col", WINDOWS, {**WINDOWS, "padding": [2**31]}),
        ("aten::relu", {}, None),
    ],
)  # fmt: skip
def test_limits_arguments(name: str, good: dict[str, object], bad: dict[str, object] | None) -> None:
    check_arguments(name, good)
    if bad is not None:
        with pytest.raises(GraphError, match="but with"):
            check_arguments(name, bad)


@pytest.mark.parametrize(
    "spelling", [b"\0example\0peaks(Tensor heat) -> Tensor\0", b'"example::peaks(Tensor)"']
)
def test_operators_of_named_libraries_pass(
    spelling: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "libown.so"
    library.write_bytes(
        os.urandom(1000) + b"\0" + spelling + b"\0from_file(\0aten\0lensbox_jpeg\0read_files("
    )
    monkeypatch.setattr(op_library, "_named_libraries", {library})
    assert op_library.is_of_named_library("example::peaks")
    assert not op_library.is_of_named_library("example::peak")
    assert not op_library.is_of_named_library("other::peaks")
    with pytest.raises(GraphError, match="is not registered"):
        find_operator("example::peaks")
    with pytest.raises(GraphError, match="must not call"):
        find_operator("aten::from_file")
    require_allowed("example::anything")  # an export leaves these to the callers of the runtimes
