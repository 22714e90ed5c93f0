"""make checks Python, torch and the compiler before it starts."""

from pathlib import Path

from built_runner import REPOSITORY
from programs import run


def make(*arguments: str, code: int = 0) -> str:
    return run("make", "--no-print-directory", *arguments, cwd=REPOSITORY, code=code).stdout


def python_of(folder: Path, fits: bool) -> str:
    """Write an interpreter that only reports whether its version fits."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\ncase $1 in -c) exit {int(not fits)};; --version) echo Python 3.9.2;; esac\n")
    path.chmod(0o755)
    return f"PYTHON={path}"


def test_names_an_unsupported_python_and_a_missing_compiler(tmp_path: Path) -> None:
    place = f"VENV={tmp_path / 'venv'}"
    assert "Python 3.9.2" in make("demo", place, python_of(tmp_path, fits=False), code=2)
    printed = make("demo", place, python_of(tmp_path, fits=True), "CXX=no-such-compiler", code=2)
    assert "no-such-compiler" in printed
    assert list(tmp_path.iterdir()) == [tmp_path / "python"]


def test_reinstalls_another_torch(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    stamp = tmp_path / "bin" / ".torch"
    stamp.write_text("torch==2.12.0\n")
    for torch, reinstalls in ((), False), (("torch==2.12.0",), False), (("torch==2.13.0",), True):
        plan = make("--dry-run", "ops", f"VENV={tmp_path}", *(f"TORCH={version}" for version in torch))
        assert ("Installing torch==2.13.0" in plan) == reinstalls
        # The recipe writes what the next run compares.
        assert (f"echo 'torch==2.13.0' > {stamp}" in plan) == reinstalls


def test_python_3_14_makes_a_program(tmp_path: Path) -> None:
    newer = tmp_path / "newer"
    newer.write_text("#!/bin/sh\ncase $2 in *'>= (3, 14)'*) echo 2;; esac\n")
    newer.chmod(0o755)
    for python, name in (
        (f"PYTHON={newer}", "detector.pt2"),
        (python_of(tmp_path, fits=True), "detector.pt"),
    ):
        assert f"--output artifacts/{name}\n" in make("--dry-run", "artifact", f"VENV={tmp_path}", python)
