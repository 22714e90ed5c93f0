"""Which folder of the C++ runtime may include which, and what its simple headers need."""

import re
from pathlib import Path

import pytest
from built_runner import REPOSITORY

SOURCES = REPOSITORY / "cpp_runtime" / "src"
HEADERS = REPOSITORY / "cpp_runtime" / "include" / "lensbox"
# Each floor may include the floors before it.
FLOORS = ["file", "images", "model", "detect"]


def included(path: Path, pattern: str) -> list[str]:
    return re.findall(rf"^#include {pattern}", path.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("floor", FLOORS)
def test_a_floor_includes_lower_floors_only(floor: str) -> None:
    assert sorted(path.name for path in SOURCES.iterdir() if path.is_dir()) == sorted(FLOORS)
    allowed = FLOORS[: FLOORS.index(floor) + 1]
    for path in (SOURCES / floor).iterdir():
        for name in included(path, '"(.+)"'):
            # `fit.h` is the op library's.
            assert name == "fit.h" or name.partition("/")[0] in allowed, f"{path.name} includes {name}"


def test_the_simple_half_includes_no_other_library() -> None:
    own = {f"lensbox/{header.name}" for header in HEADERS.glob("*.h")} | {"lensbox/version.h"}
    for header in HEADERS.glob("*.h"):
        for name in included(header, "<(.+)>"):
            assert name in own or "/" not in name, f"{header.name} includes {name}"
