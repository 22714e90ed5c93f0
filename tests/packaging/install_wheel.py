"""Install one wheel beside several versions of torch, and find the faces of a picture with each.

    python tests/packaging/install_wheel.py build/wheel/dist/lensbox-*.whl 2.13.0 2.14.1

Each version has a new environment, made with venv and pip alone. The detection exports the shipped detector.
The kernels must be the same file with each torch.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

_PICTURE = Path(__file__).resolve().parents[2] / "docs" / "demo.jpg"
_FACES = 2
_LOADED_KERNELS = """
import hashlib
import lensbox.ops
from pathlib import Path
(path,) = {line.split()[-1] for line in open("/proc/self/maps") if "liblensbox_kernels" in line}
print(Path(lensbox.ops.library_path()).parent.name, hashlib.sha256(Path(path).read_bytes()).hexdigest())
"""


def main(wheel: Path, versions: list[str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kernels = {_check(wheel.resolve(), version, folder / version) for version in versions}
        assert len(kernels) == 1, f"the kernels must be one file, got the hashes {kernels}"
        _check_message_without_bindings(folder / versions[0], versions[0])
    print(f"{wheel.name}: the same kernels with each torch, sha256 {kernels.pop()}")


def _check(wheel: Path, version: str, folder: Path) -> str:
    """Detect beside one version of torch; return the hash of the loaded kernels."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = (folder / "bin" / "pip", "--disable-pip-version-check", "install", "--quiet")
    subprocess.run([*pip, f"torch=={version}"], check=True)
    subprocess.run([*pip, f"torch=={version}", wheel], check=True)
    found = _run(folder, "lensbox", "detect", "--format", "table", str(_PICTURE))
    faces = found.stdout.splitlines()[1:]
    assert len(faces) == _FACES, f"{_FACES} faces must be found, got {found.stdout}{found.stderr}"
    bindings, kernels = _run(folder, "python", "-c", _LOADED_KERNELS).stdout.split()
    print(f"torch {version}: {bindings}", flush=True)
    assert version.startswith(bindings.removeprefix("torch")), f"torch {version} must not load {bindings}"
    return kernels


def _check_message_without_bindings(folder: Path, version: str) -> None:
    """Remove the bindings; the import error names the attempt and the command to type in one line."""
    (ops,) = folder.glob("lib/python*/site-packages/lensbox/ops")
    minor = ".".join(version.split(".")[:2])
    (ops / f"torch{minor}").rename(ops / "torch0.0")
    line = _run(folder, "python", "-c", "import lensbox.ops", code=1).stderr.strip().splitlines()[-1]
    assert "this lensbox has op libraries for torch 0.0" in line, line
    assert "pip install" in line, line


def _run(folder: Path, program: str, *arguments: str, code: int = 0) -> "subprocess.CompletedProcess[str]":
    """Run a program of the environment, with a separate cache and without this machine's settings."""
    environment = {"HOME": str(folder), "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    line: list[str | Path] = [folder / "bin" / program, *arguments]
    ended = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == code, ended
    return ended


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), sys.argv[2:])
