"""Changes of the entries of artifacts, for `damaged_files.rewritten`, and of values in `lensbox.json`."""

import copy
import json
from collections.abc import Callable
from typing import Any, NamedTuple

Change = Callable[[dict[str, bytes]], None]
Values = dict[str, Any]

PRECISION = {  # of an artifact in reduced precision
    "dtype": "float16",
    "device": "cuda",
    "pictures": 12,
    "detections": 30,
    "median_box_change": 0.01,
    "max_box_change": 1.5,
    "max_score_change": 0.004,
}


def put(path: str, value: Any) -> Callable[[Values], None]:
    """Set the value at a path such as 'self_test.expected.labels.0'."""

    def change(values: Any) -> None:
        *parents, last = path.split(".")
        for key in parents:
            values = values[int(key) if isinstance(values, list) else key]
        values[int(last) if isinstance(values, list) else last] = copy.deepcopy(value)

    return change


def remove(path: str) -> Callable[[Values], None]:
    def change(values: Any) -> None:
        *parents, last = path.split(".")
        for key in parents:
            values = values[key]
        del values[last]

    return change


def with_metadata(change: Callable[[Values], object]) -> Change:
    def apply(entries: dict[str, bytes]) -> None:
        (name,) = (name for name in entries if name.endswith("/extra/lensbox.json"))
        document = json.loads(entries[name])
        change(document)
        entries[name] = json.dumps(document).encode()

    return apply


def compiled_for(**values: object) -> Change:
    return with_metadata(lambda document: document["compiled"].update(values))


def without(ending: str) -> Change:
    def apply(entries: dict[str, bytes]) -> None:
        names = [name for name in entries if name.endswith(ending)]
        assert names
        for name in names:
            del entries[name]

    return apply


def no_machine_code(entries: dict[str, bytes]) -> None:
    """Replace the libraries by a text, which the linker refuses."""
    entries.update({name: b"no machine code" for name in entries if name.endswith(".so")})


class RefusedPackage(NamedTuple):
    """A change, the exit code of the C++ program, and texts of the errors in Python and C++."""

    change: Change
    code: int
    python: str
    cpp: str


def _refused(change: Change, python: str, cpp: str = "", code: int = 3) -> RefusedPackage:
    """cpp: defaults to `python`."""
    return RefusedPackage(change, code, python, cpp or python)


# Packages of machine code that no runtime loads on a CPU.
REFUSED_PACKAGES = [
    _refused(compiled_for(torch_version="2.10.1"), "was compiled for torch 2.10.1; "),
    _refused(compiled_for(platform="linux-riscv64"), "was compiled for linux-riscv64; this machine is"),
    _refused(compiled_for(cpu_features=["fpu", "fpu9"]), "a processor with fpu9, which this one lacks"),
    _refused(compiled_for(device="cuda", gpu_architecture="sm_90"), "device must be cuda, for which", code=2),
    _refused(
        compiled_for(device="tpu"),
        "compiled.device must be 'cpu' or 'cuda'",
        'compiled.device must match the pattern cpu|cuda, got "tpu"',
    ),
    _refused(compiled_for(gpu_architecture="sm_90"), "compiled.gpu_architecture must be"),
    _refused(
        compiled_for(cpu_features=["AVX"]),
        "compiled.cpu_features[0] must match pattern",
        "compiled.cpu_features[0] must match the pattern [a-z",
    ),
    _refused(without("/extra/lensbox.json"), "it holds no lensbox.json", "it holds no lensbox.json"),
    _refused(without(".so"), "cannot be loaded on cpu"),
    _refused(no_machine_code, "cannot be loaded on cpu"),
]
