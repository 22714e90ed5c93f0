"""Finds liblensbox_ops.so, checks what it was built for, and loads it into the process."""

import ctypes
import os
import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import torch

LIBRARY_NAME = "liblensbox_ops.so"
LIBRARY_VARIABLE = "LENSBOX_OPS_LIBRARY"


class OpLibraryError(ImportError):
    """The op library is missing, or cannot be used with the installed torch."""


@dataclass(frozen=True)
class BuildInfo:
    """What an op library was built for, as recorded in the file itself."""

    version: str
    torch: str
    backends: tuple[str, ...]
    build: str  # compilers and GPU architectures, as key=value; "" in libraries that do not say


def library_path() -> Path:
    """The op library: the file that LENSBOX_OPS_LIBRARY names, otherwise the installed one.

    Raises:
        OpLibraryError: there is no such file.
    """
    named = os.environ.get(LIBRARY_VARIABLE)
    candidates = [Path(named)] if named else [Path(__file__).with_name(LIBRARY_NAME), *_installed()]
    for path in candidates:
        if path.is_file():
            return path
    looked = ", ".join(str(path) for path in candidates)
    remedy = (
        f"set {LIBRARY_VARIABLE} to the file"
        if named
        else "build it with: pip install --no-build-isolation ."
    )
    raise OpLibraryError(f"lensbox's op library was not found. Looked at: {looked}. To mend it, {remedy}")


def read_build_info(path: Path) -> BuildInfo:
    """Reads what the library at `path` was built for, without loading it.

    Raises:
        OpLibraryError: the file is no lensbox op library.
    """
    match = re.search(
        rb"lensbox-build version=(\S+) torch=(\S+) backends=([\w,]+)([ -~]*)", path.read_bytes()
    )
    if match is None:
        raise OpLibraryError(f"{path} is not a lensbox op library: it holds no build record")
    version, built_for, backends, build = (group.decode() for group in match.groups())
    return BuildInfo(version, built_for, tuple(backends.split(",")), build.strip())


def load() -> None:
    """Loads the op library, which registers the ops as torch.ops.lensbox.

    Raises:
        OpLibraryError: it is missing, built for another torch, a second copy of an open library, or refused
            by the linker.
    """
    path = library_path()
    info = read_build_info(path)
    facts = f"library: {path}, built for torch {info.torch}; installed torch: {torch.__version__}"
    if _minor(info.torch) != _minor(torch.__version__):
        raise OpLibraryError(
            f"lensbox's op library was built for another torch ({facts}). "
            "C++ interfaces change between torch's minor versions: rebuild it with "
            "pip install --no-build-isolation --force-reinstall --no-deps ."
        )
    # Registering an op twice throws inside the linker, which ends the process.
    if hasattr(torch.ops.lensbox, "giou") and not _is_open(path):
        others = ", ".join(sorted(torch.ops.loaded_libraries)) or "another library"
        raise OpLibraryError(
            f"the ops of the namespace lensbox are registered already, by {others}. A process can open one "
            f"op library of lensbox only ({facts})"
        )
    try:
        torch.ops.load_library(path)
    except OSError as error:
        # torch 2.13 wraps the linker's message in one of its own that only names the path.
        raise OpLibraryError(
            f"lensbox's op library could not be loaded ({facts}): {error.__cause__ or error}"
        ) from error


def _is_open(path: Path) -> bool:
    try:
        ctypes.CDLL(str(path.resolve()), mode=os.RTLD_NOW | os.RTLD_NOLOAD)
    except OSError:
        return False
    return True


def _installed() -> list[Path]:
    """Where the library lies in an editable install, whose Python files are elsewhere."""
    try:
        return [Path(str(distribution("lensbox").locate_file(f"lensbox/ops/{LIBRARY_NAME}")))]
    except PackageNotFoundError:
        return []


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
