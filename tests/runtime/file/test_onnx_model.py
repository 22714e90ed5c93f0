"""The properties of ONNX models, and why models are refused: tests/runtimes/test_evil_files.py has more."""

from collections.abc import Callable
from typing import Any

import pytest
from onnx import TensorProto, helper

from lensbox.runtime.file.onnx_model import read_properties


def model(domain: str = "") -> Any:
    made = helper.make_model(
        helper.make_graph([helper.make_node("Relu", ["x"], ["y"], domain=domain)], "g", [], [])
    )
    helper.set_model_props(made, {"key": "text", "other": ""})
    return made


def test_returns_the_properties() -> None:
    assert read_properties(model("ai.onnx").SerializeToString()) == {"key": b"text", "other": b""}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda made: made.graph.initializer.add(data_location=TensorProto.EXTERNAL),
            "has external data",
        ),
        (lambda made: made.graph.node.add(domain="com.microsoft"), "of the domain 'com.microsoft'"),
        (lambda made: made.functions.add(name="f"), "functions or training information"),
        (lambda made: made.metadata_props.add(key="key", value="other"), "two properties key"),
    ],
)
def test_says_why_a_model_is_refused(change: Callable[[Any], object], message: str) -> None:
    made = model()
    change(made)
    with pytest.raises(ValueError, match=message):
        read_properties(made.SerializeToString())


def test_rejects_malformed_protocol_buffers() -> None:
    for data in (b"\x08", b"\x3a\x05\x00", b"\x0b", b"\x02\x00"):
        with pytest.raises(ValueError, match="is damaged or no ONNX model"):
            read_properties(data)
