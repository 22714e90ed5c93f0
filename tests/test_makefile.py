"""make checks Python, torch and the compiler before it starts."""

import subprocess
from pathlib import Path

import pytest
from page_blocks import REPOSITORY


def make(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = ["make", "--no-print-directory", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False)


def python_of(folder: Path, fits: bool) -> str:
    """Write an interpreter that only reports whether its version fits."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\ncase $1 in -c) exit {int(not fits)};; --version) echo Python 3.9.2;; esac\n")
    path.chmod(0o755)
    return f"PYTHON={path}"


@pytest.mark.parametrize("goal", ["demo", "test", "lint"])
def test_rejects_an_unsupported_python(goal: str, tmp_path: Path) -> None:
    result = make(goal, f"VENV={tmp_path / 'venv'}", python_of(tmp_path, fits=False))
    assert result.returncode == 2
    assert f"got {tmp_path / 'python'}, Python 3.9.2. Name another:" in result.stdout
    assert f"  make PYTHON=python3.12 {goal}\n" in result.stdout
    assert list(tmp_path.iterdir()) == [tmp_path / "python"]


def test_reinstalls_another_torch(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    stamp = tmp_path / "bin" / ".torch"

    def plan(torch: str = "") -> str:
        return make("--dry-run", "ops", f"VENV={tmp_path}", *([f"TORCH={torch}"] if torch else [])).stdout

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
    result = make("demo", f"VENV={tmp_path / 'venv'}", python_of(tmp_path, fits=True), "CXX=no-such-compiler")
    assert result.returncode == 2
    assert "There is no C++ compiler, no-such-compiler." in result.stdout
    assert "apt-get install -y g++" in result.stdout
