"""make checks Python, torch and the compiler before it starts."""

from pathlib import Path

import pytest
from page_blocks import REPOSITORY
from programs import run


def make(*arguments: str, code: int = 0) -> str:
    return run("make", "--no-print-directory", *arguments, cwd=REPOSITORY, code=code).stdout


def python_of(folder: Path, fits: bool) -> str:
    """Write an interpreter that only reports whether its version fits."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\ncase $1 in -c) exit {int(not fits)};; --version) echo Python 3.9.2;; esac\n")
    path.chmod(0o755)
    return f"PYTHON={path}"


@pytest.mark.parametrize("goal", ["demo", "test", "lint"])
def test_rejects_an_unsupported_python(goal: str, tmp_path: Path) -> None:
    printed = make(goal, f"VENV={tmp_path / 'venv'}", python_of(tmp_path, fits=False), code=2)
    assert f"got {tmp_path / 'python'}, Python 3.9.2. Name another:" in printed
    assert f"  make PYTHON=python3.12 {goal}\n" in printed
    assert list(tmp_path.iterdir()) == [tmp_path / "python"]


def test_reinstalls_another_torch(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    stamp = tmp_path / "bin" / ".torch"

    def plan(torch: str = "") -> str:
        return make("--dry-run", "ops", f"VENV={tmp_path}", *([f"TORCH={torch}"] if torch else []))

    stamp.write_text("torch==2.12.0\n")
    assert "Installing torch" not in plan("torch==2.12.0")
    assert "Installing torch==2.13.0" in plan("torch==2.13.0")
    assert "Installing Python packages and building the op library" in plan("torch==2.13.0")
    assert "Installing torch" not in plan()
    stamp.unlink()
    assert "Installing torch==2.12.0" in plan("torch==2.12.0")
    # The recipe writes what the next run compares.
    assert f"echo 'torch==2.12.0' > {stamp}" in plan("torch==2.12.0")


def test_names_a_missing_compiler(tmp_path: Path) -> None:
    options = [f"VENV={tmp_path / 'venv'}", python_of(tmp_path, fits=True), "CXX=no-such-compiler"]
    printed = make("demo", *options, code=2)
    assert "There is no C++ compiler, no-such-compiler." in printed
    assert "apt-get install -y g++" in printed
