"""Reject external data and non-standard operators wherever ONNX allows them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from lensbox.artifact.onnx_model import read_properties

EXTERNAL = numpy_helper.from_array(np.zeros(2, np.float32), "w")
EXTERNAL.ClearField("raw_data")
EXTERNAL.data_location = TensorProto.EXTERNAL
EXTERNAL.external_data.add(key="location", value="/etc/passwd")
MARKED = numpy_helper.from_array(np.zeros(2, np.float32), "w")
MARKED.data_location = TensorProto.EXTERNAL
SPARSE = helper.make_sparse_tensor(EXTERNAL, numpy_helper.from_array(np.zeros(2, np.int64)), [9])


def model(*nodes: Any) -> Any:
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"]), *nodes], "g", [value], [value])
    made = helper.make_model(graph)
    helper.set_model_props(made, {"key": "text", "other": ""})
    return made


def node(**attributes: Any) -> Any:
    return helper.make_node("If", ["x"], ["y"], **attributes)


def with_domain(domain: str) -> Any:
    return helper.make_node("Relu", ["x"], ["y"], domain=domain)


def subgraph(*nodes: Any, tensors: tuple[Any, ...] = ()) -> Any:
    return helper.make_graph(list(nodes), "inner", [], [], initializer=list(tensors))


def test_returns_the_properties() -> None:
    made = model(with_domain("ai.onnx"), node(then_branch=subgraph(with_domain(""))))
    assert read_properties(made.SerializeToString()) == {"key": b"text", "other": b""}


@pytest.mark.parametrize(
    "change",
    [
        lambda made: made.graph.initializer.append(EXTERNAL),
        lambda made: made.graph.initializer.append(MARKED),
        lambda made: made.graph.sparse_initializer.append(SPARSE),
        lambda made: made.graph.node.append(node(value=EXTERNAL)),
        lambda made: made.graph.node.append(node(values=[EXTERNAL, EXTERNAL])),
        lambda made: made.graph.node.append(node(value=SPARSE)),
        lambda made: made.graph.node.append(node(then_branch=subgraph(tensors=(EXTERNAL,)))),
        lambda made: made.graph.node.append(node(branches=[subgraph(node(value=EXTERNAL))])),
        lambda made: made.graph.node.append(node(then_branch=subgraph(node(a=subgraph(node(b=MARKED)))))),
    ],
)
def test_rejects_external_data(change: Callable[[Any], None]) -> None:
    made = model()
    change(made)
    with pytest.raises(ValueError, match="external data"):
        read_properties(made.SerializeToString())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda made: made.graph.node.append(with_domain("com.microsoft")),
            "beyond ONNX's standard ones, of the domain 'com.microsoft'",
        ),
        (
            lambda made: made.graph.node.append(node(then_branch=subgraph(with_domain("ai.onnx.ml")))),
            "of the domain 'ai.onnx.ml'",
        ),
        (
            lambda made: made.functions.append(
                helper.make_function("d", "f", ["x"], ["y"], [with_domain("")], [])
            ),
            "functions or training information",
        ),
        (
            lambda made: setattr(made.training_info.add().algorithm, "name", "a"),
            "functions or training information",
        ),
        (lambda made: made.metadata_props.add(key="key", value="other"), "two properties key"),
    ],
)
def test_rejects_other_content(change: Callable[[Any], None], message: str) -> None:
    made = model()
    change(made)
    with pytest.raises(ValueError, match=message):
        read_properties(made.SerializeToString())


def test_walks_deeply_nested_graphs() -> None:
    inner = subgraph(node(value=EXTERNAL))
    for _ in range(20):
        inner = subgraph(node(then_branch=inner))
    with pytest.raises(ValueError, match="external data"):
        read_properties(model(node(then_branch=inner)).SerializeToString())


@pytest.mark.parametrize(
    "data",
    [
        b"\x08",  # a number that does not end
        b"\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
        b"\x3a\x05\x00",  # a graph beyond the end
        b"\x0b",  # a group
        b"\x02\x00",  # field 0
        b"\xea\x80\x80\x80\x80\x01\x00",  # a tag beyond 32 bits, of which parsers may drop the higher ones
    ],
)
def test_rejects_malformed_protocol_buffers(data: bytes) -> None:
    with pytest.raises(ValueError, match="is damaged or no ONNX model"):
        read_properties(data)
