"""The kinds of artifact files. A new kind is one entry here, and a module of `lensbox.runtime.formats`."""

from collections.abc import Container
from typing import Literal, NamedTuple

FileKind = Literal["torchscript", "program", "aoti", "onnx"]  # the names of `lensbox export --format`


class Kind(NamedTuple):
    """title: for people. entries: of the zip archives of this kind, beside all others' entries; () for files
    that are no archives. loader: the module of `lensbox.runtime.formats` with the function `load`."""

    title: str
    entries: tuple[str, ...]
    loader: str


# The first kind that fits is taken.
KINDS: dict[FileKind, Kind] = {
    "program": Kind(
        "Exported program (detect and loss)", ("archive_format", "models/detect.json"), "program"
    ),
    "aoti": Kind("AOTInductor package (only detect, machine code)", ("archive_format",), "aoti"),
    "torchscript": Kind("TorchScript", ("data.pkl", "constants.pkl"), "torchscript"),
    "onnx": Kind("ONNX (only detect)", (), "onnx"),
}


def kind_of_archive(entries: Container[str]) -> FileKind:
    """Return the kind of a zip archive with these entries. Raise ValueError for an archive of no kind."""
    for kind, (_, needed, _) in KINDS.items():
        if needed and all(name in entries for name in needed):
            return kind
    if "data.pkl" in entries:
        raise ValueError("is not a TorchScript file: it holds no code (was it written by torch.save?)")
    raise ValueError("is not an artifact but another zip archive")
