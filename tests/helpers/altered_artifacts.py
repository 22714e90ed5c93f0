"""Altered artifacts and the expected errors: one table of cases for the runtimes in Python and C++.

`docs/artifact.md` has it for people; each case names its line there.
"""

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

from damaged_files import rewritten, with_bit_flipped

Outcome = Literal["refused", "self-test fails", "good"]


class Altered(NamedTuple):
    """One case.

    line: the first cell of its line in docs/artifact.md; write: puts a copy of an artifact, altered, at a
    path; outcome: of loading it and running its self-test; python, cpp: a regular expression for what the
    error says there.
    """

    line: str
    write: Callable[[bytes, Path], object]
    outcome: Outcome
    python: str = ""
    cpp: str = ""


def _content(change: Callable[[bytes], bytes]) -> Callable[[bytes, Path], object]:
    return lambda data, path: path.write_bytes(change(data))


def _entry(suffix: str, change: Callable[[bytes], bytes]) -> Callable[[bytes, Path], object]:
    """Changes the entries whose names end so; all checksums are right."""

    def change_entries(entries: dict[str, bytes]) -> None:
        names = [name for name in entries if name.endswith(suffix)]
        assert names
        for name in names:
            entries[name] = change(entries[name])

    return _content(lambda data: rewritten(data, change_entries))


def _metadata(*keys: str | int, value: Any) -> Callable[[bytes, Path], object]:
    """Another value in lensbox.json. `json` writes and reads NaN and Infinity."""

    def change(content: bytes) -> bytes:
        document = json.loads(content)
        node = document
        for key in keys[:-1]:
            node = node[key]
        node[keys[-1]] = value
        return json.dumps(document).encode()

    return _entry("/extra/lensbox.json", change)


def _metadata_text(old: str, new: str) -> Callable[[bytes, Path], object]:
    def change(content: bytes) -> bytes:
        text = content.decode()
        assert old in text
        return text.replace(old, new, 1).encode()

    return _entry("/extra/lensbox.json", change)


def _flipped_in(entry: str, offset: int = 0) -> Callable[[bytes, Path], object]:
    """A bit of the local entry whose name ends so, counted from behind its name."""

    def change(data: bytes) -> bytes:
        position = data.index(entry.encode()) + len(entry) + offset
        return with_bit_flipped(data, position, 2)

    return _content(change)


def _weight_flipped(data: bytes) -> bytes:
    """A bit of the largest weight."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        weights = [info for info in archive.infolist() if "/constants/" in info.filename]
        content = archive.read(max(weights, key=lambda info: info.file_size))
    return data.replace(content, with_bit_flipped(content, 0))


def _time_touched(data: bytes) -> bytes:
    """A bit of the time of an entry in the directory."""
    return with_bit_flipped(data, data.rindex(b"PK\1\2") + 12)


def _weights_zeroed(data: bytes) -> bytes:
    def change(entries: dict[str, bytes]) -> None:
        for name, content in entries.items():
            if "/constants/" in name:
                entries[name] = bytes(len(content))

    return rewritten(data, change)


_MISSING = "missing, a folder, or not an archive"
_DAMAGED = "flipped bytes, truncated, or bytes appended"
_MALFORMED = (
    "new seal, malformed `lensbox.json`: infinite tolerances, thresholds that are NaN or outside 0 to 1, "
    "no expected boxes, deep nesting"
)
_TRUE_BUT_WRONG = "new seal, other valid values in `lensbox.json`"
_OPS = "new seal, `ops` of `lensbox.json` emptied"
_WEIGHTS = "new seal, other weights"
_NEWER = "written by a newer Lensbox"

_TOLERANCE = ("self_test", "tolerance", "cpu", "boxes")
_DEEP = "[" * 200_000

ALTERED = {
    "missing": Altered(
        _MISSING, lambda data, path: None, "refused", "there is no file altered.pt in", "no such file"
    ),
    "a folder": Altered(
        _MISSING, lambda data, path: path.mkdir(), "refused", "must be an artifact", "not a file"
    ),
    "empty": Altered(_MISSING, _content(lambda data: b""), "refused", *["not an artifact: it is empty"] * 2),
    "text": Altered(
        _MISSING,
        _content(lambda data: b"text" * 99),
        "refused",
        "not an artifact, which begins",
        "not an artifact, which begins",
    ),
    "bit of a weight": Altered(_DAMAGED, _content(_weight_flipped), "refused", "seal", "seal"),
    "bit of the metadata": Altered(
        _DAMAGED, _flipped_in("extra/lensbox.json", 200), "refused", "seal", "seal"
    ),
    "bit of the code": Altered(_DAMAGED, _flipped_in("grad_mode.py", 100), "refused", "seal", "seal"),
    "bit of a time stamp": Altered(_DAMAGED, _content(_time_touched), "refused", "seal", "seal"),
    "cut off": Altered(_DAMAGED, _content(lambda data: data[:-1000]), "refused", "seal", "seal"),
    "cut off by one": Altered(_DAMAGED, _content(lambda data: data[:-1]), "refused", "seal", "seal"),
    "a byte added": Altered(_DAMAGED, _content(lambda data: data + b"\0"), "refused", "seal", "seal"),
    "bytes before": Altered(_DAMAGED, _content(lambda data: b"PK\3\4" + data), "refused", "seal", "seal"),
    "infinite tolerance": Altered(
        _MALFORMED, _metadata(*_TOLERANCE, value=float("inf")), "refused", "Infinity", "damaged"
    ),
    "tolerance beyond float64": Altered(
        _MALFORMED,
        _metadata_text('"boxes": 0.01', '"boxes": 1e999'),
        "refused",
        "tolerance.cpu.boxes",
        "damaged",
    ),
    "tolerance beyond float32": Altered(
        _MALFORMED,
        _metadata(*_TOLERANCE, value=1e300),
        "refused",
        "tolerance.cpu.boxes",
        "tolerance.cpu.boxes",
    ),
    "negative tolerance": Altered(
        _MALFORMED, _metadata(*_TOLERANCE, value=-1), "refused", "tolerance.cpu.boxes", "tolerance.cpu.boxes"
    ),
    "threshold NaN": Altered(
        _MALFORMED, _metadata("defaults", "score_threshold", value=float("nan")), "refused", "NaN", "damaged"
    ),
    "threshold of the self-test NaN": Altered(
        _MALFORMED, _metadata("self_test", "score_threshold", value=float("nan")), "refused", "NaN", "damaged"
    ),
    "threshold above 1": Altered(
        _MALFORMED,
        _metadata("defaults", "iou_threshold", value=1.5),
        "refused",
        "defaults.iou_threshold",
        "defaults.iou_threshold",
    ),
    "no expected boxes": Altered(
        _MALFORMED,
        _metadata("self_test", "expected", "boxes", value=[]),
        "refused",
        "self_test.expected.boxes",
        "self_test.expected.boxes",
    ),
    "nothing expected": Altered(
        _MALFORMED,
        _metadata("self_test", "expected", value={"boxes": [], "scores": []}),
        "refused",
        "self_test.expected",
        "self_test.expected",
    ),
    "nested deeply": Altered(
        _MALFORMED, _entry("lensbox.json", lambda content: _DEEP.encode()), "refused", "nested", "nested"
    ),
    "key twice": Altered(
        _MALFORMED, _metadata_text('"ops":', '"ops": [], "ops":'), "refused", "ops", '"ops" twice'
    ),
    "schema nested deeply": Altered(
        _MALFORMED, _metadata("ops", 0, value="lensbox::f" + "(" * 2000), "refused", r"ops\[0\]", r"ops\[0\]"
    ),
    "other expected boxes": Altered(
        _TRUE_BUT_WRONG,
        _metadata_text('"boxes": [[', '"boxes": [[1'),
        "self-test fails",
        "by rounding",
        "by rounding",
    ),
    "other tolerance": Altered(_TRUE_BUT_WRONG, _metadata(*_TOLERANCE, value=1e30), "good"),
    "no ops": Altered(_OPS, _metadata("ops", value=[]), "good"),
    "other weights": Altered(_WEIGHTS, _content(_weights_zeroed), "self-test fails", "expected", "expected"),
    "newer": Altered(
        _NEWER, _metadata("format_version", value=3), "refused", "format version is 3", "format version 3"
    ),
}
