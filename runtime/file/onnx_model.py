"""Check an ONNX model as a protocol buffer before a runtime parses it.

ONNX files are data and may come from strangers, with two exceptions: external data, by which a model reads
other files or memory, and operators outside the standard domains. This walk rejects both. The walk needs no
ONNX package. The C++ runtime does the same check.
"""

from collections.abc import Iterator
from typing import NamedTuple

_STANDARD_DOMAINS = (b"", b"ai.onnx")
_MAX_TAG = 1 << 32  # parsers drop higher bits
_MAX_DEPTH = 100  # of messages; the limit of protobuf's parser

# Wire types of protocol buffers.
_VARINT, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5

# Fields in onnx.proto that lead to nodes and tensors: for each message, field numbers and inner messages.
_MESSAGES: dict[str, dict[int, str]] = {
    "model": {7: "graph", 14: "property"},
    "graph": {1: "node", 5: "tensor", 15: "sparse tensor"},
    "node": {5: "attribute"},
    "attribute": {
        5: "tensor",
        6: "graph",
        10: "tensor",
        11: "graph",
        22: "sparse tensor",
        23: "sparse tensor",
    },
    "sparse tensor": {1: "tensor", 2: "tensor"},
    "tensor": {},
}
_TRAINING, _FUNCTIONS = 20, 25  # fields of ModelProto
_DOMAIN = 7  # field of NodeProto
_EXTERNAL_DATA, _DATA_LOCATION = 13, 14  # fields of TensorProto


class _Field(NamedTuple):
    """A field of a message. value: a number, or the content of a string or message; 0 for a fixed size."""

    number: int
    value: int | memoryview


def read_properties(data: bytes) -> dict[str, bytes]:
    """Return the `metadata_props` of a serialized model.

    Raises ValueError if the model is malformed or has external data, non-standard operators, functions,
    training information, or two properties with one name. The message continues the file's name.
    """
    properties: dict[str, bytes] = {}
    waiting = [("model", memoryview(data), 0)]
    while waiting:
        message, content, depth = waiting.pop()
        if depth > _MAX_DEPTH:
            raise ValueError(f"is nested too deeply: more than {_MAX_DEPTH} levels")
        for number, value in _fields(content):
            if message == "tensor" and (
                number == _EXTERNAL_DATA or (number == _DATA_LOCATION and value != 0)
            ):
                raise ValueError(
                    "has external data (tensors outside the file), which artifacts must not have"
                )
            if message == "model" and number in (_TRAINING, _FUNCTIONS):
                raise ValueError("has functions or training information, which artifacts must not have")
            if isinstance(value, int):
                continue
            if message == "node" and number == _DOMAIN and bytes(value) not in _STANDARD_DOMAINS:
                domain = bytes(value[:40]).decode(errors="replace")
                raise ValueError(f"has operators beyond ONNX's standard ones, of the domain {domain!r}")
            inner = _MESSAGES[message].get(number)
            if inner == "property":
                key, text = _property(value)
                if key in properties:
                    raise ValueError(f"has two properties {key}")
                properties[key] = text
            elif inner is not None:
                waiting.append((inner, value, depth + 1))
    return properties


def _property(content: memoryview) -> tuple[str, bytes]:
    key = text = b""
    for number, value in _fields(content):
        if number == 1 and not isinstance(value, int):
            key = bytes(value)
        elif number == 2 and not isinstance(value, int):
            text = bytes(value)
    return key.decode(errors="replace"), text


def _fields(content: memoryview) -> Iterator[_Field]:
    """Yield the fields of a message. Raises ValueError for a malformed protocol buffer."""
    at = 0
    while at < len(content):
        tag, at = _varint(content, at)
        number, kind = tag >> 3, tag & 7
        if tag >= _MAX_TAG or number == 0:
            raise ValueError("is damaged or no ONNX model: it has a field without a number")
        if kind == _VARINT:
            value, at = _varint(content, at)
            yield _Field(number, value)
            continue
        if kind == _BYTES:
            size, at = _varint(content, at)
        elif kind in (_EIGHT_BYTES, _FOUR_BYTES):
            size = 8 if kind == _EIGHT_BYTES else 4
        else:
            raise ValueError("is damaged or no ONNX model: it has a field of an unknown type")
        if at + size > len(content):
            raise ValueError("is damaged or no ONNX model: it has a field that reaches beyond its end")
        yield _Field(number, content[at : at + size] if kind == _BYTES else 0)
        at += size


def _varint(content: memoryview, at: int) -> tuple[int, int]:
    """Return a number and the position after it."""
    number = 0
    for index in range(10):
        if at + index >= len(content):
            break
        byte = content[at + index]
        number |= (byte & 0x7F) << (7 * index)
        if byte < 0x80 and number < 1 << 64:
            return number, at + index + 1
    raise ValueError("is damaged or no ONNX model: it has a number that does not end")
