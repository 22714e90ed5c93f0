"""Altered artifacts and the expected errors: one table of cases for the runtimes in Python and C++."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from altered_packages import put, with_metadata, without
from damaged_files import archive_of, rewritten, seal, with_bit_flipped

Outcome = Literal["refused", "self-test fails", "good"]
Write = Callable[[bytes, Path], object]


class Altered(NamedTuple):
    """One case.

    line: the first cell of its line in docs/artifact.md. write: puts an altered copy of an artifact at a
    path. outcome: of loading the copy and running its self-test. python, cpp: regular expressions for errors.
    """

    line: str
    write: Write
    outcome: Outcome
    python: str = ""
    cpp: str = ""


def _refused(line: str, write: Write, python: str, cpp: str = "") -> Altered:
    """cpp: defaults to `python`."""
    return Altered(line, write, "refused", python, cpp or python)


def _content(change: Callable[[bytes], bytes]) -> Write:
    return lambda data, path: path.write_bytes(change(data))


def _metadata(key: str, value: Any) -> Write:
    """Set a value in lensbox.json, such as "self_test.tolerance.cpu". `json` writes NaN and Infinity."""
    return _content(lambda data: rewritten(data, with_metadata(put(key, value))))


def _metadata_text(change: Callable[[str], str]) -> Write:
    def apply(entries: dict[str, bytes]) -> None:
        (name,) = (name for name in entries if name.endswith("/extra/lensbox.json"))
        text = entries[name].decode()
        entries[name] = change(text).encode()
        assert entries[name] != text.encode()

    return _content(lambda data: rewritten(data, apply))


def _flipped_in(entry: str, offset: int = 0) -> Write:
    """Flip a bit of the entry whose name ends so. offset: in bytes, from the end of the name."""

    def change(data: bytes) -> bytes:
        return with_bit_flipped(data, data.index(entry.encode()) + len(entry) + offset, 2)

    return _content(change)


def _weight_flipped(data: bytes) -> bytes:
    """Flip a bit of the largest weight."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        weights = [info for info in archive.infolist() if "/constants/" in info.filename]
        content = archive.read(max(weights, key=lambda info: info.file_size))
    return data.replace(content, with_bit_flipped(content, 0))


def _time_touched(data: bytes) -> bytes:
    """Flip a bit of the time of an entry in the directory."""
    return with_bit_flipped(data, data.rindex(b"PK\1\2") + 12)


def _saved_tensors(data: bytes, path: Path) -> None:
    torch.save({"w": torch.zeros(3)}, path)
    seal(path)


def _without_metadata(data: bytes, path: Path) -> None:
    path.write_bytes(rewritten(data, without("/extra/lensbox.json")))


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

_BOXES = "self_test.tolerance.cpu.boxes"
_EXPECTED = "self_test.expected"
_NAN, _INFINITY = float("nan"), float("inf")

ALTERED = {
    "missing": _refused(_MISSING, lambda data, path: None, "there is no file altered.pt in", "no such file"),
    "a folder": _refused(_MISSING, lambda data, path: path.mkdir(), "must be an artifact", "not a file"),
    "empty": _refused(_MISSING, _content(lambda data: b""), "not an artifact: it is empty"),
    "text": _refused(_MISSING, _content(lambda data: b"text" * 99), "not an artifact, which begins"),
    "an image": _refused(
        _MISSING, _content(lambda data: b"\xff\xd8\xff\xe0 and so on"), "not an artifact.* but an image"
    ),
    "weights": _refused(
        _MISSING,
        _content(lambda data: b"\x10\0\0\0\0\0\0\0{}"),
        "but holds weights: `lensbox export --weights` takes it",
    ),
    "another archive": _refused(
        _MISSING,
        _content(lambda data: archive_of([("a/b", b"")])),
        "not an artifact but another zip archive",
        "cannot be read as an archive of torch",
    ),
    "saved tensors": _refused(
        _MISSING, _saved_tensors, "not a TorchScript file: it holds no code", r"torch\.save"
    ),
    "without metadata": _refused(
        _MISSING, _without_metadata, "it holds no lensbox.json", "it holds no lensbox.json.*`lensbox export`"
    ),
    "bit of a weight": _refused(_DAMAGED, _content(_weight_flipped), "seal"),
    "bit of the metadata": _refused(_DAMAGED, _flipped_in("extra/lensbox.json", 200), "seal"),
    "bit of the code": _refused(_DAMAGED, _flipped_in("grad_mode.py", 100), "seal"),
    "bit of a time stamp": _refused(_DAMAGED, _content(_time_touched), "seal"),
    "cut off": _refused(_DAMAGED, _content(lambda data: data[:-1000]), "seal"),
    "cut off by one": _refused(_DAMAGED, _content(lambda data: data[:-1]), "seal"),
    "a byte added": _refused(_DAMAGED, _content(lambda data: data + b"\0"), "seal"),
    "bytes before": _refused(_DAMAGED, _content(lambda data: b"PK\3\4" + data), "seal"),
    "infinite tolerance": _refused(_MALFORMED, _metadata(_BOXES, _INFINITY), "Infinity", "unusable"),
    "tolerance beyond float64": _refused(
        _MALFORMED,
        _metadata_text(lambda text: text.replace('"boxes": 0.01', '"boxes": 1e999', 1)),
        "tolerance.cpu.boxes",
        "unusable",
    ),
    "tolerance beyond float32": _refused(_MALFORMED, _metadata(_BOXES, 1e300), "tolerance.cpu.boxes"),
    "negative tolerance": _refused(_MALFORMED, _metadata(_BOXES, -1), "tolerance.cpu.boxes"),
    "threshold NaN": _refused(_MALFORMED, _metadata("defaults.score_threshold", _NAN), "NaN", "unusable"),
    "threshold of the self-test NaN": _refused(
        _MALFORMED, _metadata("self_test.score_threshold", _NAN), "NaN", "unusable"
    ),
    "threshold above 1": _refused(
        _MALFORMED, _metadata("defaults.iou_threshold", 1.5), "defaults.iou_threshold"
    ),
    "no expected boxes": _refused(_MALFORMED, _metadata(f"{_EXPECTED}.boxes", []), f"{_EXPECTED}.boxes"),
    "nothing expected": _refused(_MALFORMED, _metadata(_EXPECTED, {"boxes": [], "scores": []}), _EXPECTED),
    "nested deeply": _refused(_MALFORMED, _metadata_text(lambda text: "[" * 200_000), "nested"),
    "key twice": _refused(
        _MALFORMED,
        _metadata_text(lambda text: text.replace('"ops":', '"ops": [], "ops":', 1)),
        "ops",
        '"ops" twice',
    ),
    "schema nested deeply": _refused(_MALFORMED, _metadata("ops.0", "lensbox::f" + "(" * 2000), r"ops\[0\]"),
    "other expected boxes": Altered(
        _TRUE_BUT_WRONG,
        _metadata_text(lambda text: text.replace('"boxes": [[', '"boxes": [[1', 1)),
        "self-test fails",
        "by rounding",
        "by rounding",
    ),
    "other tolerance": Altered(_TRUE_BUT_WRONG, _metadata(_BOXES, 1e30), "good"),
    "no ops": Altered(_OPS, _metadata("ops", []), "good"),
    "other weights": Altered(_WEIGHTS, _content(_weights_zeroed), "self-test fails", "expected", "expected"),
    "newer": _refused(_NEWER, _metadata("format_version", 3), "format version is 3", "format version 3"),
}
