"""Install one wheel beside several versions of torch, and find the face of a photo with each.

    python tests/packaging/install_wheel.py build/wheel/dist/lensbox-*.whl 2.13.0 2.14.1

Each version has a new environment, made with venv and pip alone. The first detection exports the shipped
detector. The script prints the seconds of the first and of a second detection. The kernels must be the same
file with each torch.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

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
        photo = _photo(folder)
        kernels = {_check(wheel.resolve(), version, photo, folder / version) for version in versions}
        assert len(kernels) == 1, f"the kernels must be one file, got the hashes {kernels}"
        _check_message_without_bindings(folder / versions[0], versions[0])
    print(f"{wheel.name}: the same kernels with each torch, sha256 {kernels.pop()}")


def _check(wheel: Path, version: str, photo: Path, folder: Path) -> str:
    """Detect twice beside one version of torch; return the hash of the loaded kernels."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = (folder / "bin" / "pip", "--disable-pip-version-check", "install", "--quiet")
    subprocess.run([*pip, f"torch=={version}"], check=True)
    subprocess.run([*pip, f"torch=={version}", wheel], check=True)
    empty = folder / "empty"
    empty.mkdir()
    first, second = _detect(folder, photo, empty), _detect(folder, photo, empty)
    bindings, kernels = _run(folder, "python", "-c", _LOADED_KERNELS, cwd=empty).stdout.split()
    print(f"torch {version}: {bindings}, first {first:.1f} s, second {second:.1f} s", flush=True)
    assert version.startswith(bindings.removeprefix("torch")), f"torch {version} must not load {bindings}"
    return kernels


def _detect(folder: Path, photo: Path, empty: Path) -> float:
    """Run `lensbox detect` and return its seconds; the photo holds one face."""
    start = time.monotonic()
    answer = _run(folder, "lensbox", "detect", "--format", "csv", photo, cwd=empty)
    lines = answer.stdout.splitlines()
    assert len(lines) == 2, f"one face must be found, got {answer.stdout}{answer.stderr}"
    return time.monotonic() - start


def _check_message_without_bindings(folder: Path, version: str) -> None:
    """Remove the bindings; the import error names the attempt and the command to type in one line."""
    (ops,) = folder.glob("lib/python*/site-packages/lensbox/ops")
    minor = ".".join(version.split(".")[:2])
    (ops / f"torch{minor}").rename(ops / "torch0.0")
    failed = _run(folder, "python", "-c", "import lensbox.ops", cwd=folder, check=False)
    line = failed.stderr.strip().splitlines()[-1]
    assert failed.returncode == 1, failed
    assert "this lensbox has op libraries for torch 0.0" in line, line
    assert "pip install" in line, line


def _run(
    folder: Path, program: str, *arguments: "str | Path", cwd: Path, check: bool = True
) -> "subprocess.CompletedProcess[str]":
    """Run a program of the environment, with a separate cache and without this machine's settings."""
    environment = {"HOME": str(folder), "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(
        [folder / "bin" / program, *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=check,
    )


def _photo(folder: Path) -> Path:
    """Return the photograph of one face that matplotlib contains."""
    packages = folder / "matplotlib"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--target", str(packages), "matplotlib"], check=True)
    photo = packages / "matplotlib" / "mpl-data" / "sample_data" / "grace_hopper.jpg"
    return Path(shutil.copy(photo, folder / "photo.jpg"))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), sys.argv[2:])
