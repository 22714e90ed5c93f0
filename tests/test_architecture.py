"""Imports between folders follow docs/architecture.md; includes in C++; one source of the version number."""

import ast
import graphlib
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]

# The folders that each folder may import.
ARROWS: dict[str, set[str]] = {
    "common": set(),
    "ops": {"common"},
    "client": {"common"},
    "model": {"common", "ops"},
    "runtime": {"common", "ops"},
    "cli": {"common", "client", "model", "ops", "runtime"},
    "export": {"cli", "common", "ops", "model", "runtime"},
    "evaluation": {"cli", "common", "export", "model", "ops", "runtime"},
    "train": {"cli", "common", "evaluation", "ops", "model", "runtime"},
    "serve": {"cli", "common", "ops", "runtime"},
    "cpp_runtime": set(),
    "bench": {"cli", "client", "common", "ops", "runtime"},
}

# The layers of a package, from below: each folder or module may import the layers below it. "." are the
# other modules beside the folders.
LAYERS = {
    "runtime": ["file", "images", ".", "detect", "formats", "loading.py", "__init__.py"],
    "evaluation": ["data", "average_precision.py", "figures.py", "evaluate.py", "plots.py", "."],
    "train": ["settings.py", "photographs.py", "views", "loss", "run", "."],
    "export": ["options.py", "detector", "verify", "plan.py", "pipeline.py", "formats", "."],
    "serve": [
        *("settings.py", "errors.py", "folders.py", "shutdown.py", "observability", "engine", "requests"),
        *("models", "loading.py", "http", "processes", "ray", "."),
    ],
}


def imported_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and full name of each import, inside functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            yield node.lineno, name


def own_imports(files: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """Yield place and name, without "lensbox.", of each import of Lensbox."""
    for path in files:
        for line, name in imported_names(ast.parse(path.read_text(encoding="utf-8"))):
            if name.startswith("lensbox."):
                yield f"{path.relative_to(REPOSITORY)}:{line}", name.removeprefix("lensbox.")


def layer_of(name: str) -> str:
    """Return the layer of an imported name such as "runtime.images.photo.Photo"."""
    parts = name.split(".")
    while parts:
        for path in ("/".join(parts) + ".py", "/".join([*parts, "__init__.py"])):
            if (REPOSITORY / path).is_file():
                return layer_of_file(path)
        parts.pop()
    raise AssertionError(f"there is no module {name}")


def layer_of_file(path: str) -> str:
    """Return the layer of a module such as "runtime/images/photo.py"."""
    package, _, rest = path.partition("/")
    return rest if rest in LAYERS[package] else rest.rpartition("/")[0] or "."


@pytest.mark.parametrize("folder", ARROWS)
def test_imports_follow_the_arrows(folder: str) -> None:
    files = sorted((REPOSITORY / folder).rglob("*.py"))
    assert files
    imported = own_imports(files)
    assert not [pair for pair in imported if pair[1].split(".")[0] not in ARROWS[folder] | {folder}]


@pytest.mark.parametrize("package", LAYERS)
def test_imports_follow_the_layers(package: str) -> None:
    layers = LAYERS[package]
    files = sorted((REPOSITORY / package).rglob("*.py"))
    assert {layer_of_file(str(path.relative_to(REPOSITORY))) for path in files} == set(layers)
    for place, name in own_imports(files):
        if name.split(".")[0] == package:
            own = layers.index(layer_of_file(place.partition(":")[0]))
            assert layers.index(layer_of(name)) <= own, f"{place} imports {name}"


def test_every_code_folder_has_arrows() -> None:
    project = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    packages = set(re.findall(r'^"lensbox/(\w+)" = "\1"$', project, re.MULTILINE))
    assert packages == ARROWS.keys()


def test_arrows_have_no_cycle() -> None:
    graphlib.TopologicalSorter(ARROWS).prepare()  # raises CycleError


def test_runtime_needs_only_torch_numpy_pillow_and_pydantic() -> None:
    at_once: set[str] = set()
    later: set[str] = set()
    for path in (REPOSITORY / "runtime").rglob("*.py"):
        for statement in ast.parse(path.read_text(encoding="utf-8")).body:
            is_plain = isinstance(statement, (ast.Import, ast.ImportFrom))
            names = {name.split(".")[0] for _, name in imported_names(statement)}
            (at_once if is_plain else later).update(names)
    needed = {"torch", "numpy", "PIL", "pydantic", "pydantic_core", "lensbox"} | sys.stdlib_module_names
    needed.add("typing_extensions")  # of pydantic and torch
    assert at_once <= needed
    # In functions that need them, or where their absence is caught.
    assert later - needed == {"cryptography", "onnxruntime"}


def test_version_has_one_source() -> None:
    pattern = re.compile(r"VERSION\s+[0-9]+\.[0-9]+\.[0-9]+")
    for path in (REPOSITORY / "CMakeLists.txt", REPOSITORY / "cpp_runtime" / "CMakeLists.txt"):
        text = path.read_text(encoding="utf-8")
        assert not pattern.search(text), f"{path} must not define a version"
        assert "pyproject.toml" in text


CPP_RUNTIME = REPOSITORY / "cpp_runtime"
CPP_HEADERS = CPP_RUNTIME / "include" / "lensbox"
# Each folder of the C++ runtime may include the folders before it.
CPP_LAYERS = ["core/file", "core/images", "core/backends", "core/detect", "src/model", "src/tensors"]


def cpp_includes(path: Path, pattern: str) -> list[str]:
    return re.findall(rf"^#include {pattern}", path.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("layer", CPP_LAYERS)
def test_a_layer_includes_lower_layers_only(layer: str) -> None:
    folders = [path for part in ("core", "src") for path in (CPP_RUNTIME / part).iterdir() if path.is_dir()]
    assert sorted(folders) == sorted(CPP_RUNTIME / name for name in CPP_LAYERS)
    allowed = {name.partition("/")[2] for name in CPP_LAYERS[: CPP_LAYERS.index(layer) + 1]}
    for path in (CPP_RUNTIME / layer).iterdir():
        for name in cpp_includes(path, '"(.+)"'):
            # Headers without a folder, and those of its CPU kernels, are the op library's.
            assert "/" not in name or name.partition("/")[0] in allowed | {"cpu"}, (
                f"{path.name} includes {name}"
            )


def test_the_core_includes_no_torch() -> None:
    for path in (CPP_RUNTIME / "core").rglob("*.*"):
        for name in cpp_includes(path, "<(.+)>"):
            assert name.partition("/")[0] not in ("ATen", "c10", "caffe2", "torch"), f"{path.name}: {name}"
            assert not name.startswith("lensbox/torch/"), f"{path.name}: {name}"


def test_the_simple_half_includes_no_other_library() -> None:
    own = {f"lensbox/{header.name}" for header in CPP_HEADERS.glob("*.h")} | {"lensbox/version.h"}
    for header in CPP_HEADERS.glob("*.h"):
        for name in cpp_includes(header, "<(.+)>"):
            assert name in own or "/" not in name, f"{header.name} includes {name}"
