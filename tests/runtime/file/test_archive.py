"""Artifact files made to be read differently: Python and C++ read the same of each, or both refuse.

One process of C++ reads all files of a test.
"""

import contextlib
import io
import json
import struct
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from damaged_files import with_bit_flipped
from onnx import TensorProto, helper, numpy_helper
from photo_pixels import cpp_artifacts
from programs import REPOSITORY, memory_limit

from lensbox.common.errors import ArtifactError
from lensbox.runtime.file.archive import inflated_sizes, open_file
from lensbox.runtime.file.seal import sealed_onnx, sealed_zip
from lensbox.runtime.formats.onnx import onnx_session

_GOOD = json.loads((REPOSITORY / "cpp_runtime/tests/metadata_cases.json").read_text(encoding="utf-8"))["good"]
_METADATA = json.dumps(_GOOD).encode()
_OTHER = json.dumps({**_GOOD, "name": "other"}).encode()


def _compared(files: Mapping[str, bytes], folder: Path) -> set[str]:
    """Assert that Python and C++ read the same metadata. Return the names of the files that are refused."""
    paths = [folder / str(index) for index in range(len(files))]
    for path, file in zip(paths, files.values(), strict=True):
        path.write_bytes(file)
    refused = set()
    outcomes = cpp_artifacts(*((path, "") for path in paths))
    for (name, file), theirs in zip(files.items(), outcomes, strict=True):
        ours: dict[str, Any] = {}
        with contextlib.suppress(ArtifactError):
            found = open_file(file, name)
            kind = ("torchscript", "program", "aoti", "onnx").index(found.kind)
            ours = {"kind": kind, "name": found.metadata.name}
        if not ours:
            refused.add(name)
        assert ours == {key: value for key, value in theirs.items() if key != "error"}, (name, theirs)
    return refused


_ENTRIES = {"a/version": b"3\n", "a/data.pkl": b"x", "a/constants.pkl": b"x"}
_NAME = "a/extra/lensbox.json"


def _zip(*more: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    content = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(content, "w", method) as archive:
        warnings.simplefilter("ignore")  # zipfile warns of a second entry of one name
        for name, value in (*_ENTRIES.items(), *more):
            archive.writestr(name, value)
    return sealed_zip(content.getvalue())


def _with_size(archive: bytes, size: int) -> bytes:
    """Return a sealed archive whose directory gives this size for its last entry."""
    unsealed = archive[: archive.rindex(b"PK\5\6") + 20] + b"\0\0"
    entry = unsealed.rindex(b"PK\1\2") + 24
    return sealed_zip(unsealed[:entry] + struct.pack("<I", size) + unsealed[entry + 4 :])


# torch's reader, which Python and C++ call, refuses further ones.
READ_ZIPS = {
    "sound": _zip((_NAME, _METADATA)),
    "stored": _zip((_NAME, _METADATA), method=zipfile.ZIP_STORED),
    "a folder's own entry": _zip((_NAME, _METADATA), ("a/", b"")),
}
REFUSED_ZIPS = {
    "two folders": _zip((_NAME, _METADATA), ("b/extra/lensbox.json", _OTHER)),
    "two of one name": _zip((_NAME, _METADATA), (_NAME, _OTHER)),
    "two names that differ by case": _zip((_NAME, _METADATA), (_NAME.upper().replace("A/", "a/", 1), _OTHER)),
    "name in capitals": _zip(("a/extra/LENSBOX.JSON", _METADATA)),
    "lzma": _zip((_NAME, _METADATA), method=zipfile.ZIP_LZMA),
    "no metadata": _zip(),
    "metadata of more than 16 MiB": _zip((_NAME, _METADATA + b" " * (16 << 20))),
    "directory with a smaller size": _with_size(_zip((_NAME, _METADATA)), 10),
    "directory with a larger size": _with_size(_zip((_NAME, _METADATA)), (16 << 20) + 1),
    "stored, with a larger size": _with_size(_zip((_NAME, _METADATA), method=zipfile.ZIP_STORED), 1 << 31),
}


def test_zip(tmp_path: Path) -> None:
    assert _compared({**READ_ZIPS, **REFUSED_ZIPS}, tmp_path) == set(REFUSED_ZIPS)


def test_the_larger_of_two_entries_of_one_name_counts() -> None:
    content = _zip(("a/x", bytes(100)), ("a/X", b"short"))
    assert inflated_sizes(io.BytesIO(content))["x"] == 100


def test_inflates_no_more_than_the_limit() -> None:
    """A file of 256 KiB must not take 256 MiB, whatever size its directory gives."""
    large = _zip((_NAME, _METADATA + b" " * (256 << 20)))
    honest = f"it has {len(_METADATA) + (256 << 20)} bytes, at most {16 << 20} are read"
    for data, message in ((large, honest), (_with_size(large, 1000), "column 999")):
        with memory_limit(128 << 20), pytest.raises(ArtifactError, match=message):
            open_file(data, "large.pt")


def _tensor(**fields: Any) -> TensorProto:
    made = numpy_helper.from_array(np.zeros(2, np.float32), "w")
    for name, value in fields.items():
        setattr(made, name, value)
    return made


_MARKED = _tensor(data_location=TensorProto.EXTERNAL)
_EXTERNAL = _tensor()
_EXTERNAL.external_data.add(key="location", value="/etc/passwd")
_SPARSE = helper.make_sparse_tensor(_EXTERNAL, numpy_helper.from_array(np.zeros(2, np.int64)), [9])


def _node(domain: str = "", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node("If", ["x"], ["y"], domain=domain, **attributes)


def _graph(*nodes: onnx.NodeProto, tensors: tuple[TensorProto, ...] = ()) -> onnx.GraphProto:
    return helper.make_graph(list(nodes), "g", [], [], initializer=list(tensors))


def _model(*nodes: onnx.NodeProto, raw: bytes = b"", **fields: Any) -> bytes:
    """Return a sealed model with metadata. raw: appended."""
    made = helper.make_model(_graph(*nodes), **fields)
    made.metadata_props.add(key="lensbox.json", value=_METADATA)
    return sealed_onnx(made.SerializeToString() + raw)


def _field(number: int, content: bytes, tag_bits: int = 0) -> bytes:
    return _varint(number << 3 | 2 | tag_bits) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    groups = [value >> shift & 0x7F for shift in range(0, max(1, value.bit_length()), 7)]
    return bytes([*(group | 0x80 for group in groups[:-1]), groups[-1]])


def _deep(levels: int) -> bytes:
    """Return a graph in an attribute of a node of a graph, and so on."""
    graph = b""
    for _ in range(levels):
        graph = _field(1, _field(5, _field(6, graph)))
    return graph


_BEYOND = 1 << 35  # onnxruntime drops these bits of a tag
_LOCATION = _field(1, b"location") + _field(2, b"/etc/passwd")
READ_MODELS = {
    "sound": _model(_node("ai.onnx", value=_tensor(), then_branch=_graph(_node(), tensors=(_tensor(),)))),
    "nested": _model(raw=_field(7, _deep(20))),
    "unknown fields": _model(raw=_field(99, b"\xff") + _varint(98 << 3) + b"\1\xbd\6" + bytes(4)),
    "domain as a number": _model(raw=_field(7, _field(1, _varint(7 << 3) + b"\1"))),
    "domain of a fixed size": _model(raw=_field(7, _field(1, _varint(7 << 3 | 5) + b"abcd"))),
    "location 0": _model(raw=_field(7, _field(5, _varint(14 << 3) + b"\0"))),
    "keys as numbers": _model(raw=_field(14, b"\x08\1\x12\1x")),
}  # fmt: skip
REFUSED_MODELS = {
    "initializer": _model(raw=_field(7, _graph(tensors=(_EXTERNAL,)).SerializeToString())),
    **{f"tensor {index}": _model(node) for index, node in enumerate((
        _node(value=_EXTERNAL), _node(value=_MARKED), _node(values=[_tensor(), _EXTERNAL]),
        _node(value=_SPARSE), _node(body=_graph(tensors=(_EXTERNAL,))),
        _node(bodies=[_graph(_node(value=_MARKED))]),
    ))},
    "flipped bit": with_bit_flipped(_model(), 30),
    "other domain": _model(_node("com.microsoft")),
    "other domain in a graph": _model(_node(body=_graph(_node("ai.onnx.ml")))),
    "functions": _model(functions=[helper.make_function("d", "f", ["x"], ["y"], [_node()], [])]),
    "training": _model(raw=_field(20, b"")),
    "metadata twice": _model(raw=_field(14, _field(1, b"lensbox.json") + _field(2, _OTHER))),
    "another key twice": _model(raw=2 * _field(14, _field(1, b"key"))),
    "deeply nested": _model(raw=_field(7, _deep(60))),
    "external data, tag beyond 32 bits": _model(raw=_field(7, _field(5, _field(13, _LOCATION, _BEYOND)))),
    "domain, tag beyond 32 bits": _model(raw=_field(7, _field(1, _field(7, b"com.microsoft", _BEYOND)))),
    "graph, tag beyond 32 bits": _model(raw=_field(7, _field(5, _field(13, _LOCATION)), _BEYOND)),
    "location as a text": _model(raw=_field(7, _field(5, _field(14, b"")))),
    "location 2^32": _model(raw=_field(7, _field(5, _varint(14 << 3) + _varint(1 << 32)))),
    "field 0": _model(raw=b"\2\0"),
    "a group": _model(raw=b"\x0b"),
    "a number of 65 bits": _model(raw=b"\x08" + 9 * b"\x80" + b"\2"),
    "a number without end": _model(raw=b"\x08" + 11 * b"\x80"),
    "a field beyond the end": _model(raw=b"\x3a\xff\xff\xff\xff\x0f"),
}  # fmt: skip


def test_onnx(tmp_path: Path) -> None:
    assert _compared({**READ_MODELS, **REFUSED_MODELS}, tmp_path) == set(REFUSED_MODELS)


def test_python_names_the_format_to_onnxruntime(tmp_path: Path) -> None:
    """onnxruntime would take a file whose bytes 4 to 7 are ORTM as its own format, which nobody checked."""
    onnxruntime = pytest.importorskip("onnxruntime")
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["x2"])], "g", [value], [])
    graph.output.append(helper.make_tensor_value_info("x2", TensorProto.FLOAT, [1]))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "model.ort")
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    converted = (tmp_path / "model.ort").read_bytes()
    assert converted[4:8] == b"ORTM"
    onnx_session(model.SerializeToString(), "a file", 1)
    with pytest.raises(ArtifactError, match="a file cannot be loaded by onnxruntime"):
        onnx_session(converted, "a file", 1)
