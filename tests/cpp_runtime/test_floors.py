"""The floors of the C++ runtime: which folder of `src` may include which."""

import re
from pathlib import Path

import pytest
from built_runner import REPOSITORY

SOURCES = REPOSITORY / "cpp_runtime" / "src"
# Each floor may include the floors before it.
FLOORS = ["file", "images", "model", "detect"]


@pytest.mark.parametrize("floor", FLOORS)
def test_a_floor_includes_lower_floors_only(floor: str) -> None:
    allowed = FLOORS[: FLOORS.index(floor) + 1]
    sources = [path for path in (SOURCES / floor).iterdir() if path.suffix in (".h", ".cpp")]
    assert sources
    wrong = [f"{path.name} includes {name}" for path in sources for name in own_includes(path, allowed)]
    assert wrong == []


def test_every_folder_is_a_floor() -> None:
    assert sorted(path.name for path in SOURCES.iterdir() if path.is_dir()) == sorted(FLOORS)


def own_includes(path: Path, allowed: list[str]) -> list[str]:
    """Return the files that a source includes by quotes and must not; `fit.h` is the op library's."""
    names = re.findall(r'^#include "(.+)"', path.read_text(encoding="utf-8"), re.MULTILINE)
    return [name for name in names if name != "fit.h" and name.partition("/")[0] not in allowed]
