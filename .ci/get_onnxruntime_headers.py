"""Put the headers of onnxruntime into a folder: python get_onnxruntime_headers.py FOLDER, then build the
runner with -DONNXRUNTIME_ROOT=FOLDER/usr. The library comes from pip's package.

They come out of Debian 13's package, which Debian 12 can unpack, though not install, from the mirror that
this machine has its own packages from. pip's package has no headers.
"""

import platform
import shutil
import sys
import tempfile
from pathlib import Path

from debian_packages import unpack


def main(folder: Path) -> None:
    """Write FOLDER/usr/include/onnxruntime, unless it is there."""
    if (folder / "usr/include/onnxruntime").exists():
        return
    if (system := platform.freedesktop_os_release()["ID"]) != "debian":
        sys.exit(f"this takes Debian's packages, and the system is {system}")
    with tempfile.TemporaryDirectory() as name:
        unpack(["libonnxruntime-dev"], Path(name), suite="trixie", dependencies=False)
        (folder / "usr").mkdir(parents=True, exist_ok=True)
        shutil.copytree(Path(name) / "usr/include", folder / "usr/include")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
