"""The operators that an artifact calls, and the op libraries that register them."""

import contextlib
import ctypes
import locale
import mmap
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from lensbox.common.errors import ArtifactError

# The libraries of the user's own operators that the process was told to load.
_named_libraries: set[Path] = set()


def load_op_libraries(paths: Sequence[str | Path]) -> None:
    """Load shared libraries that register operators. Their code runs with all rights of the process.

    Raise ArtifactError, with the linker's reason, if a file is missing or cannot be loaded, or is another op
    library of Lensbox than the loaded one. torch ends the process if two libraries register one operator.
    """
    for path in map(Path, paths):
        if not path.is_file():
            raise ArtifactError(f"--ops must be a shared library, got {path}")
        # Late: a program that imports the runtime must be able to report a library that does not load.
        import lensbox.ops

        own = lensbox.ops.library_path()
        if path.name == own.name and not path.samefile(own):
            raise ArtifactError(
                f"--ops must be a library of your own operators, got Lensbox's {path}; {own} is loaded, and "
                "LENSBOX_OPS_LIBRARY names another"
            )
        try:
            with numbers_with_points():
                torch.ops.load_library(path.resolve())
        except OSError as error:
            # torch 2.13 wraps the linker's message in an error that only names the path.
            raise ArtifactError(f"--ops {path} cannot be loaded: {error.__cause__ or error}") from error
        if path.name != own.name:
            _named_libraries.add(path.resolve())


def is_of_named_library(name: str) -> bool:
    """Return whether a library that `load_op_libraries` loaded holds an operator such as "example::peaks".

    torch does not know which library registered an operator, and another part of the program may have opened
    the library first. So this function looks for the names in the file, as a library spells them to torch.
    """
    namespace, _, rest = name.partition("::")
    function = rest.partition(".")[0]
    spaces, functions = (re.escape(part.encode()) for part in (namespace, function))
    whole = re.compile(rb"(?<!\w)" + spaces + rb"::" + functions + rb"[(.\0 ]")
    parts = re.compile(spaces + rb"\0"), re.compile(rb"(?<!\w)" + functions + rb"[(.\0]")
    for path in _named_libraries:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if whole.search(content) or all(part.search(content) for part in parts):
                return True
    return False


def require_ops(artifact: str, needed: Sequence[str]) -> None:
    """Raise ArtifactError unless each schema of `needed` is registered. artifact: its name, for messages.

    A registered schema may have more arguments than the needed one, if they have defaults. Load the op
    library of `lensbox.ops`; raise OpLibraryError if it does not load.
    """
    import lensbox.ops  # late, as in `load_op_libraries`

    for schema in needed:
        registered = torch._C._jit_get_schemas_for_operator(schema.split("(")[0].split(".")[0])
        if not registered:
            advice = "; it has other operators: export the artifact again" * schema.startswith("lensbox::")
            raise ArtifactError(
                f"{artifact} needs the operator {schema}, which is not registered: load its library with "
                f"--ops FILE (load_artifact(path, ops=[FILE])); {lensbox.ops.library_path()} is loaded"
                f"{advice}"
            )
        try:
            with numbers_with_points():
                wanted = torch._C.parse_schema(schema)
        except Exception as error:  # torch's parser raises several types
            raise ArtifactError(
                f"{artifact} needs the operator {schema}, which torch cannot read: {error}"
            ) from error
        # (torch's stub lacks this method)
        if not any(found.is_backward_compatible_with(wanted) for found in registered):  # type: ignore[attr-defined]
            raise ArtifactError(
                f"{artifact} needs the operator {schema}, but the loaded library has {registered[0]}: "
                "export the artifact again, or load the library it was made with (--ops FILE)"
            )


@contextlib.contextmanager
def numbers_with_points() -> Iterator[None]:
    """Read numbers with a decimal point in this thread, whatever locale the program has set.

    torch's parser of schemas uses `strtod`, which reads 0.25 as 0 under a locale with a decimal comma.
    """
    if locale.localeconv()["decimal_point"] == ".":
        yield
        return
    libc = ctypes.CDLL(None)
    libc.newlocale.restype = libc.uselocale.restype = ctypes.c_void_p
    libc.uselocale.argtypes = [ctypes.c_void_p]
    libc.newlocale.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p]
    plain = libc.newlocale(1 << locale.LC_NUMERIC, b"C", None)
    before = libc.uselocale(plain)
    try:
        yield
    finally:
        libc.uselocale(before)
        libc.freelocale(ctypes.c_void_p(plain))
