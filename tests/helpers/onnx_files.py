"""Changed ONNX files with a valid seal: one table of cases for the runtimes in Python and C++."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import onnx.external_data_helper

from lensbox.artifact.seal import sealed_onnx

Change = Callable[[onnx.ModelProto], None]


def resealed(data: bytes, change: Change) -> bytes:
    """Return the file after a change, with a valid seal."""
    model = onnx.load_model_from_string(data)
    kept = {entry.key: entry.value for entry in model.metadata_props if entry.key != "lensbox.sha256"}
    onnx.helper.set_model_props(model, kept)
    change(model)
    return sealed_onnx(model.SerializeToString())


def _metadata(**values: Any) -> Change:
    """Set values in lensbox.json; None removes one."""

    def apply(model: onnx.ModelProto) -> None:
        (entry,) = (entry for entry in model.metadata_props if entry.key == "lensbox.json")
        document = json.loads(entry.value) | values
        entry.value = json.dumps({key: value for key, value in document.items() if value is not None})

    return apply


def _without_metadata(model: onnx.ModelProto) -> None:
    onnx.helper.set_model_props(model, {})


def _other_output(model: onnx.ModelProto) -> None:
    del model.graph.output[2]


def _other_operator(model: onnx.ModelProto) -> None:
    model.graph.node[0].domain = "some.where"
    model.opset_import.append(onnx.helper.make_opsetid("some.where", 1))


def other_weights(model: onnx.ModelProto) -> None:
    """Change weights so that the file loads and the self-test fails."""
    for value in model.graph.initializer:
        if value.name.endswith("prediction.weight"):
            value.raw_data = bytes(len(value.raw_data))


def _weights_in_the_current_folder(model: onnx.ModelProto) -> None:
    """Move the largest weights to a file in the current folder, as ONNX allows."""
    value = max(model.graph.initializer, key=lambda value: len(value.raw_data))
    Path("weights.bin").write_bytes(value.raw_data)
    onnx.external_data_helper.set_external_data(value, "weights.bin", 0, len(value.raw_data))
    value.ClearField("raw_data")


# A change, and regular expressions for the error in Python and in C++.
REFUSED: list[tuple[Change, str, str]] = [
    (_without_metadata, "it holds no lensbox.json", "it holds no lensbox.json"),
    (_metadata(format_version=99), "its format version is 99", "has format version 99"),
    (_metadata(format_version=1), "format version is 1", "has format version 1"),
    (_metadata(defaults=None), "it is malformed: .*defaults", "unusable lensbox.json: .*defaults"),
    (
        _metadata(canvas={"height": 128, "width": 256, "channels": 1, "fill": 0}),
        r"the input images must be uint8 \[any, 1, 128, 256\], got uint8 \[any, 1, 256, 256\]",
        "method detect failed:.*images.* Got: 128 Expected: 256",
    ),
    (_metadata(extras={"age": {"shape": [], "kind": "values"}}), "extras", "extras"),
    (_other_output, "the outputs boxes, scores, counts, got boxes, scores", "method detect failed:.*counts"),
    (_weights_in_the_current_folder, "has external data", "external data"),
    (_other_operator, "operators beyond ONNX's standard ones, of the domain 'some.where'", "standard"),
]
