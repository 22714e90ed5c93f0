"""Find liblensbox_ops.so, check what it was built for, and load it into the process."""

import ctypes
import os
import re
from dataclasses import dataclass
from pathlib import Path

import torch

from lensbox.common.errors import ExitCode, LensboxError
from lensbox.common.machine import library_folders, minor_version

LIBRARY_NAME = "liblensbox_ops.so"
KERNELS_NAME = "liblensbox_kernels.so"
LIBRARY_VARIABLE = "LENSBOX_OPS_LIBRARY"


class OpLibraryError(LensboxError, ImportError):
    """The op library is missing, or cannot be used with the installed torch."""

    exit_code = ExitCode.UNUSABLE


@dataclass(frozen=True)
class BuildInfo:
    """The versions that an op library was built for, as recorded in the file itself."""

    version: str
    torch: str
    backends: tuple[str, ...]
    build: str  # compilers and GPU architectures, as key=value; "" if the library does not record them


def library_path() -> Path:
    """Return the op library: the file that LENSBOX_OPS_LIBRARY names, otherwise the installed one.

    A wheel has a library for each of several torch versions, in folders such as `torch2.13`. The one for the
    installed torch is returned. Raise OpLibraryError if there is no such file.
    """
    named = os.environ.get(LIBRARY_VARIABLE)
    minor = minor_version(torch.__version__)
    folders = library_folders("ops")
    candidates = [folder / part / LIBRARY_NAME for folder in folders for part in (f"torch{minor}", "")]
    if named:
        candidates = [Path(named)]
    for path in candidates:
        if path.is_file():
            return path
    others = sorted(
        {path.parent.name[5:] for folder in folders for path in folder.glob(f"torch*/{LIBRARY_NAME}")}
    )
    if others and not named:
        raise OpLibraryError(
            f"this lensbox has op libraries for torch {', '.join(others)}; torch {torch.__version__} is "
            f"installed. Install a torch that fits: pip install 'torch=={others[-1]}.*'; or build Lensbox "
            "from its sources for the installed torch: pip install --no-build-isolation ."
        )
    looked = ", ".join(str(path) for path in candidates)
    remedy = (
        f"set {LIBRARY_VARIABLE} to the file"
        if named
        else "build it with: pip install --no-build-isolation ."
    )
    raise OpLibraryError(f"lensbox's op library was not found. Looked at: {looked}. To fix this, {remedy}")


def read_build_info(path: Path) -> BuildInfo:
    """Return what a library was built for, without loading it. Raise OpLibraryError for another file."""
    match = re.search(
        rb"lensbox-build version=(\S+) torch=(\S+) backends=([\w,]+)([ -~]*)", path.read_bytes()
    )
    if match is None:
        raise OpLibraryError(f"{path} is not a lensbox op library: it holds no build record")
    version, built_for, backends, build = (group.decode() for group in match.groups())
    return BuildInfo(version, built_for, tuple(backends.split(",")), build.strip())


def load() -> None:
    """Load the op library, which registers the ops as torch.ops.lensbox.

    Raise OpLibraryError if it is missing, built for another torch, a second copy of an open library, or
    refused by the linker.
    """
    path = library_path()
    info = read_build_info(path)
    facts = f"library: {path}, built for torch {info.torch}; installed torch: {torch.__version__}"
    if minor_version(info.torch) != minor_version(torch.__version__):
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
            f"{_fault_of_kernels(path, info)}"
        ) from error


def _fault_of_kernels(path: Path, info: BuildInfo) -> str:
    """Return a sentence about kernels of another build that the linker finds, or "".

    A wheel has the kernels in a file of their own, which LD_LIBRARY_PATH may name in another place.
    """
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    opened = [Path(line.split(maxsplit=5)[-1]) for line in maps if line.endswith(f"/{KERNELS_NAME}")]
    listed = os.environ.get("LD_LIBRARY_PATH")
    folders = [*(re.split("[:;]", listed) if listed else []), path.parent.parent, path.parent]
    candidates = [*opened, *(Path(folder) / KERNELS_NAME for folder in folders)]
    kernels = next((candidate for candidate in candidates if candidate.is_file()), None)
    if kernels is None:
        return ""
    match = re.search(rb"lensbox-kernels [ -~]*", kernels.read_bytes())
    record = "no build record" if match is None else match[0].decode()
    headers = re.search(r"headers=\w+", info.build)
    if headers is None or headers[0] in record.split():
        return ""
    return (
        f". The linker finds the kernels {kernels} ({record}), which were built for other bindings than "
        f"{path} (version={info.version} {headers[0]}): take their folder out of LD_LIBRARY_PATH, or install "
        "Lensbox anew"
    )


def _is_open(path: Path) -> bool:
    try:
        ctypes.CDLL(str(path.resolve()), mode=os.RTLD_NOW | os.RTLD_NOLOAD)
    except OSError:
        return False
    return True
