"""Files made to be read differently: Python and C++ read the same of each, or both refuse.

One process of C++ reads all files of a test.
"""

import contextlib
import io
import json
import random
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from built_runner import REPOSITORY
from damaged_files import mutated, with_bit_flipped
from onnx import TensorProto, helper, numpy_helper
from photo_pixels import compared, cpp_artifacts
from picture_files import END, SIGNATURE, chunk, encoded, jpeg_segment, noise, png_file, png_header

from lensbox.common.canvas import Canvas
from lensbox.common.errors import ArtifactError
from lensbox.runtime.file.archive import open_file
from lensbox.runtime.file.seal import sealed_onnx, sealed_zip
from lensbox.runtime.formats.onnx import onnx_session

GRAY, COLOR = Canvas(32, 48, 1, 7), Canvas(32, 48, 3, 7)


# --- PNG ---

_ROWS = b"\0\1\2\0\3\4"  # of a gray picture of 2 x 2
_DATA = zlib.compress(_ROWS)
_IDAT = chunk(b"IDAT", _DATA)
_HEAD, _TEXT = png_header(2, 2, color_type=0), chunk(b"tEXt", b"a\0b")
_PALETTE, _COLOR_KEY = chunk(b"PLTE", bytes(range(12))), chunk(b"tRNS", b"\0")


def _data(*parts: bytes) -> bytes:
    return _HEAD + b"".join(chunk(b"IDAT", part) for part in parts) + END


def _header(*fields: int) -> bytes:
    """Return a file with a header of width, height, bits, color type, compression, filter, interlacing."""
    return SIGNATURE + chunk(b"IHDR", struct.pack(">IIBBBBB", *fields)) + _IDAT + END


def _palette(*chunks: bytes) -> bytes:
    return png_header(2, 2, color_type=3) + b"".join(chunks) + _IDAT + END


def _color(before: bytes, after: bytes = b"") -> bytes:
    return png_file(2, 2, before=before, after=after)


def _interlaced(rows: bytes) -> bytes:
    return png_file(2, 2, 0, rows, interlaced=True)


READ_PNGS = {
    "sound": _data(_DATA),
    "two parts, and an empty one": _data(_DATA[:3], _DATA[3:], b""),
    "another window": _data((lambda made: made.compress(_ROWS) + made.flush())(zlib.compressobj(9, 8, 9))),
    "interlaced": _interlaced(b"\0\1\0\2\0\3\4"),
    "anything behind the end": _data(_DATA) + b"junk" + _data(_DATA),
    "texts": _HEAD + _TEXT + _IDAT + _TEXT + END,
    "unknown ancillary chunk": _HEAD + chunk(b"abCd") + _IDAT + END,
    "empty color profile": _HEAD + chunk(b"iCCP") + _IDAT + END,
    "broken gamma, twice": _HEAD + 2 * chunk(b"gAMA", b"\0") + _IDAT + END,
    "EXIF data twice": _HEAD + 2 * chunk(b"eXIf", b"MM\0*") + _IDAT + END,
    "frames of an animation": _HEAD + chunk(b"acTL", struct.pack(">II", 2, 0)) + _IDAT + END,
    "a palette": _palette(_PALETTE),
    "a palette of fewer colors than indices": _palette(chunk(b"PLTE", bytes(range(6)))),
    "a suggested palette": _color(_PALETTE),
    # Transparent colors are not read.
    "transparent colors": _palette(_PALETTE, _COLOR_KEY),
    "transparent colors twice": _palette(_PALETTE, _COLOR_KEY, _COLOR_KEY),
    "transparent colors before the palette": _palette(_COLOR_KEY, _PALETTE),
    "too many transparent colors": _palette(_PALETTE, chunk(b"tRNS", bytes(9))),
    "a transparent gray of three bytes": _HEAD + chunk(b"tRNS", bytes(3)) + _IDAT + END,
    "a transparent gray behind the pixels": _HEAD + _IDAT + chunk(b"tRNS", b"\0\1") + END,
    "a transparent color beside alpha": png_file(2, 2, 6, before=chunk(b"tRNS", bytes(6))),
}
REFUSED_PNGS = {
    "checksum of the data": _data(with_bit_flipped(_DATA, -1)),
    "no checksum of the data": _data(_DATA[:-4]),
    "data cut off": _data(_DATA[:-1]),
    "a row too few": _data(zlib.compress(_ROWS[:3])),
    "a row too many": _data(zlib.compress(_ROWS + b"\0\1\2")),
    "a pixel too many": _data(zlib.compress(_ROWS + b"\0")),
    "rows in a bomb": _data(zlib.compress(_ROWS + bytes(1 << 24))),
    "data twice": _data(_DATA, _DATA),
    "junk behind the data": _data(_DATA + b"junk"),
    "no data": _data(),
    "empty data": _data(b""),
    "no zlib header": _data(_DATA[2:-4]),
    "a zlib dictionary": _data(b"\x78\xbb\0\0\0\1" + _DATA[2:]),
    "filter 5": _data(zlib.compress(b"\5\1\2\0\3\4")),
    "a pass too short": _interlaced(b"\0\1\0\2\0\3"),
    "a pass too many": _interlaced(b"\0\1\0\2\0\3\4\0\0\0"),
    "no end": _HEAD + _IDAT,
    "the end first": _HEAD + END + _IDAT,
    "content of the end": _HEAD + _IDAT + chunk(b"IEND", b"x"),
    "data with a text between": _HEAD + chunk(b"IDAT", _DATA[:3]) + _TEXT + chunk(b"IDAT", _DATA[3:]) + END,
    "header twice": _HEAD + _HEAD[8:] + _IDAT + END,
    "header behind the data": _HEAD + _IDAT + _HEAD[8:] + END,
    "header second": SIGNATURE + _TEXT + _HEAD[8:] + _IDAT + END,
    "header of 12 bytes": SIGNATURE + chunk(b"IHDR", _HEAD[16:28]) + _IDAT + END,
    "header of 14 bytes": SIGNATURE + chunk(b"IHDR", _HEAD[16:29] + b"\0") + _IDAT + END,
    "nothing": SIGNATURE,
    "the end alone": SIGNATURE + END,
    **{f"header {fields}": _header(*fields) for fields in (
        (0, 2, 8, 0, 0, 0, 0), (2, 0, 8, 0, 0, 0, 0), (2**31, 2, 8, 0, 0, 0, 0), (2, 2, 3, 0, 0, 0, 0),
        (2, 2, 4, 2, 0, 0, 0), (2, 2, 8, 1, 0, 0, 0), (2, 2, 8, 7, 0, 0, 0), (2, 2, 4, 4, 0, 0, 0),
        (2, 2, 8, 0, 1, 0, 0), (2, 2, 8, 0, 0, 1, 0), (2, 2, 8, 0, 0, 64, 0), (2, 2, 8, 0, 0, 0, 2),
    )},
    "palette of a gray picture": _HEAD + _PALETTE + _IDAT + END,
    "no palette": _palette(),
    "empty palette": _palette(chunk(b"PLTE")),
    "palette of four bytes": _palette(chunk(b"PLTE", bytes(4))),
    "palette of 257 colors": _palette(chunk(b"PLTE", bytes(771))),
    "palette twice": _palette(_PALETTE, _PALETTE),
    "palette behind the data": png_header(2, 2, color_type=3) + _IDAT + _PALETTE + END,
    "suggested palette twice": _color(_PALETTE + _PALETTE),
    "suggested palette of four bytes": _color(chunk(b"PLTE", bytes(4))),
    "suggested palette of 257 colors": _color(chunk(b"PLTE", bytes(771))),
    "suggested palette behind the data": _color(b"", _PALETTE),
    "unknown critical chunk": _HEAD + chunk(b"ABCD") + _IDAT + END,
    "name without letters": _HEAD + chunk(b"a\0\0\0") + _IDAT + END,
    "length of 2 GiB": _HEAD + struct.pack(">I", 2**31) + b"abCd" + _IDAT + END,
    "checksum of a text": _HEAD + with_bit_flipped(_TEXT, -1) + _IDAT + END,
    "checksum of the end": _HEAD + _IDAT + with_bit_flipped(END, -1),
}  # fmt: skip


@pytest.mark.parametrize("canvas", [GRAY, COLOR])
def test_png(canvas: Canvas, tmp_path: Path) -> None:
    assert set(compared({**READ_PNGS, **REFUSED_PNGS}, tmp_path / "1", canvas)) == set(REFUSED_PNGS)


# --- JPEG ---

_PICTURE = noise("RGB", 160, 120)
_BASELINE, _PROGRESSIVE = encoded(_PICTURE), encoded(_PICTURE, progressive=True)
_SCAN = b"\xff\xda"


def _with_scans(file: bytes, *indices: int) -> bytes:
    head, *scans = file.removesuffix(b"\xff\xd9").split(_SCAN)
    return head + b"".join(_SCAN + scans[index] for index in indices) + b"\xff\xd9"


def _without_scans(file: bytes, *left_out: int) -> bytes:
    return _with_scans(file, *(index for index in range(file.count(_SCAN)) if index not in left_out))


def _before_scan(segments: bytes) -> bytes:
    begin = _BASELINE.index(_SCAN)
    return _BASELINE[:begin] + segments + _BASELINE[begin:]


def _one_scan_each() -> bytes:
    """Return a sequential file with a scan for each component, each of one flat color."""
    tables = jpeg_segment(0xDB, b"\0" + b"\1" * 64)
    tables += b"".join(jpeg_segment(0xC4, kind + b"\1" + bytes(16)) for kind in (b"\0", b"\x10"))
    frame = jpeg_segment(0xC0, struct.pack(">BHHB", 8, 8, 8, 3) + b"\1\x11\0\2\x11\0\3\x11\0")
    scans = [jpeg_segment(0xDA, bytes((1, component, 0, 0, 63, 0))) + b"\x3f" for component in (1, 2, 3)]
    return b"\xff\xd8" + tables + frame + b"".join(scans) + b"\xff\xd9"


_EACH = _one_scan_each()
_SCANS = _PROGRESSIVE.count(_SCAN)
_FRAME = _BASELINE.index(b"\xff\xc0")
READ_JPEGS = {
    "sound": _BASELINE,
    "progressive": _PROGRESSIVE,
    "a scan for each component": _EACH,
    "a scan twice": _with_scans(_EACH, 0, 1, 1, 2),
    "anything behind the end": _BASELINE + b"junk" + _PROGRESSIVE,
    "comments": _before_scan(3 * jpeg_segment(0xFE, b"a comment")),
}
REFUSED_JPEGS = {
    **{f"without scan {index}": _without_scans(_PROGRESSIVE, index) for index in range(1, _SCANS)},
    "first scan alone": _without_scans(_PROGRESSIVE, *range(1, _SCANS)),
    "without the last two scans": _without_scans(_PROGRESSIVE, _SCANS - 1, _SCANS - 2),
    "gray without a scan": _without_scans(encoded(noise("L", 160, 120), progressive=True), 2),
    **{f"without component {index}": _without_scans(_EACH, index) for index in range(3)},
    "no scan": _without_scans(_BASELINE, 0),
    "two frames": _before_scan(_BASELINE[_FRAME : _FRAME + 19]),
    "no end": _BASELINE[:-2],
    "no pixels": _BASELINE[: _FRAME + 5] + bytes(4) + _BASELINE[_FRAME + 9 :],
    "lossless": _BASELINE[: _FRAME + 1] + b"\xc3" + _BASELINE[_FRAME + 2 :],
    "arithmetic": _BASELINE[: _FRAME + 1] + b"\xc9" + _BASELINE[_FRAME + 2 :],
    "progressive arithmetic": _BASELINE[: _FRAME + 1] + b"\xca" + _BASELINE[_FRAME + 2 :],
    "12 bits": _BASELINE[: _FRAME + 4] + b"\x0c" + _BASELINE[_FRAME + 5 :],
}


@pytest.mark.parametrize("canvas", [GRAY, COLOR])
def test_jpeg(canvas: Canvas, tmp_path: Path) -> None:
    assert set(compared({**READ_JPEGS, **REFUSED_JPEGS}, tmp_path / "1", canvas)) == set(REFUSED_JPEGS)


# --- artifacts ---

_GOOD = json.loads((REPOSITORY / "cpp_runtime/tests/metadata_cases.json").read_text(encoding="utf-8"))["good"]
_METADATA = json.dumps(_GOOD).encode()
_OTHER = json.dumps({**_GOOD, "name": "other"}).encode()


def _compared(files: Mapping[str, bytes], folder: Path, python_may_refuse: bool = False) -> set[str]:
    """Assert that Python and C++ read the same metadata. Return the names of the files that are refused.

    python_may_refuse: what C++ reads. What torch's reader refuses, which C++ calls first, Python refuses when
    it loads the file.
    """
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
        if not ours or "archive of torch" in theirs.get("error", ""):
            refused.add(name)
            assert "error" in theirs or python_may_refuse, (name, theirs)
        else:
            assert ours == theirs, name
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


def _edited(change: Callable[[bytearray], None]) -> bytes:
    """Return a sealed archive whose bytes were changed before it was sealed."""
    data = bytearray(_zip((_NAME, _METADATA))[: -len("lensbox.sha256=") - 64])
    data[-2:] = b"\0\0"
    change(data)
    return sealed_zip(bytes(data))


def _set(record: bytes, offset: int, value: bytes) -> Callable[[bytearray], None]:
    """Overwrite bytes of the last record of a kind: PK\\1\\2 lists the metadata, PK\\5\\6 is the end."""

    def change(data: bytearray) -> None:
        begin = data.rindex(record) + offset
        data[begin : begin + len(value)] = value

    return change


READ_ZIPS = {
    "sound": _zip((_NAME, _METADATA)),
    "stored": _zip((_NAME, _METADATA), method=zipfile.ZIP_STORED),
    "a folder's own entry": _zip((_NAME, _METADATA), ("a/", b"")),
    # The seal covers what the archive's own checksums do.
    "checksum": _edited(_set(b"PK\1\2", 16, b"\0\0\0\0")),
}
REFUSED_ZIPS = {
    "two folders": _zip((_NAME, _METADATA), ("b/extra/lensbox.json", _OTHER)),
    "metadata in another folder": _zip(("b/extra/lensbox.json", _OTHER)),
    "without a folder": _zip((_NAME, _METADATA), ("lensbox.json", _OTHER)),
    "a folder of no name": _zip(("/extra/lensbox.json", _METADATA)),
    "two of one name": _zip((_NAME, _METADATA), (_NAME, _OTHER)),
    "two names that differ by case": _zip((_NAME, _METADATA), (_NAME.upper().replace("A/", "a/", 1), _OTHER)),
    "name in capitals": _zip(("a/extra/LENSBOX.JSON", _METADATA)),
    "name with an end": _zip(("a/extra/lensbox.jsonx", _METADATA)),
    "lzma": _zip((_NAME, _METADATA), method=zipfile.ZIP_LZMA),
    "bzip2": _zip((_NAME, _METADATA), method=zipfile.ZIP_BZIP2),
    "encrypted": _edited(_set(b"PK\1\2", 8, b"\1")),
    "size": _edited(_set(b"PK\1\2", 24, b"\1\0\0\0")),
    "other name in the local record": _edited(_set(b"PK\3\4", 31, b"X")),
    "an entry less in the end record": _edited(_set(b"PK\5\6", 8, b"\3\0\3\0")),
    "an entry more in the end record": _edited(_set(b"PK\5\6", 8, b"\5\0\5\0")),
    "bytes before": _edited(lambda data: data.__setitem__(slice(0, 0), b"PK\3\4junk")),
    "no metadata": _zip(),
    "metadata of more than 16 MiB": _zip((_NAME, _METADATA + b" " * (16 << 20))),
}


def test_zip(tmp_path: Path) -> None:
    assert _compared({**READ_ZIPS, **REFUSED_ZIPS}, tmp_path) == set(REFUSED_ZIPS)


# --- ONNX ---


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


# --- random damage ---


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["zip", "onnx"])
def test_damaged_artifacts(kind: str, tmp_path: Path) -> None:
    """Change bytes around the metadata, which have a table of their own (metadata_cases.json)."""
    sound, seal = (READ_ZIPS["stored"], sealed_zip) if kind == "zip" else (READ_MODELS["sound"], sealed_onnx)
    content = sound[: sound.index(b"lensbox.sha256")]
    content = content[:-2] + b"\0\0" if kind == "zip" else content[:-4]
    begin = content.index(_METADATA)
    places = [*range(1, begin), *range(begin + len(_METADATA), len(content) - (2 if kind == "zip" else 0))]
    chance, files = random.Random(47), {}
    for seed in range(1000):
        data = bytearray(content)
        for _ in range(chance.choice((1, 1, 2, 4))):
            value = chance.choice((0, 1, 2, 127, 128, 255, chance.randrange(256)))
            data[chance.choice(places)] = value
        with contextlib.suppress(ValueError):  # no archive any more
            files[str(seed)] = seal(bytes(data))
    assert 0 < len(_compared(files, tmp_path, python_may_refuse=kind == "zip")) < len(files)


@pytest.mark.exhaustive
def test_damaged_pngs(tmp_path: Path) -> None:
    chance = random.Random(48)
    files = {str(seed): mutated(chance.choice([*READ_PNGS.values()]), chance) for seed in range(1500)}
    assert 0 < len(compared(files, tmp_path / "1", COLOR)) < len(files)
