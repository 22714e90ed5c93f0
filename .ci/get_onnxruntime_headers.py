"""Put the headers of onnxruntime into a folder: python get_onnxruntime_headers.py FOLDER, then build the
runner with -DONNXRUNTIME_ROOT=FOLDER/usr. The library comes from pip's package.

They come out of Debian 13's package, which Debian 12 can unpack, though not install, from the mirror that
this machine has its own packages from. pip's package has no headers.
"""

import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGE, SUITE = "libonnxruntime-dev", "trixie"
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"


def mirror() -> str:
    """Return the address of the mirror that apt uses."""
    system = platform.freedesktop_os_release()
    if system["ID"] != "debian":
        sys.exit(f"this takes Debian's packages, and the system is {system['ID']}")
    release = system["VERSION_CODENAME"]
    command = ["apt-get", "indextargets", "--format", "$(SITE)", "Identifier: Packages"]
    command.append(f"Codename: {release}")
    for update in (["true"], ["apt-get", "-qq", "update"]):  # before which apt may know of none
        subprocess.run(update, check=True)
        sites = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        if sites:
            return sites[0]
    sys.exit(f"apt knows no mirror of {release}")


def main(folder: Path) -> None:
    """Write FOLDER/usr/include/onnxruntime, unless it is there."""
    if (folder / "usr/include/onnxruntime").exists():
        return
    with tempfile.TemporaryDirectory() as name:
        # Lists and settings of its own: the machine's stay as they are.
        private = Path(name)
        for part in ("sources", "lists/partial", "cache/archives/partial"):
            (private / part).mkdir(parents=True)
        source = f"deb [signed-by={KEYS}] {mirror()} {SUITE} main\n"
        (private / "sources/debian.list").write_text(source)
        settings = {
            "Dir::Etc::SourceList": "/dev/null",
            "Dir::Etc::SourceParts": private / "sources",
            "Dir::State::Lists": private / "lists",
            "Dir::Cache": private / "cache",
            "APT::Sandbox::User": "root",  # no other user may write into the folder
        }
        options = [f"-o{key}={value}" for key, value in settings.items()]
        for command in (["update"], ["download", PACKAGE]):
            subprocess.run(["apt-get", "-qq", *options, *command], check=True, cwd=private)
        (package,) = private.glob("*.deb")
        unpacked = private / "unpacked"
        subprocess.run(["dpkg-deb", "--extract", package, unpacked], check=True)
        (folder / "usr").mkdir(parents=True, exist_ok=True)
        shutil.copytree(unpacked / "usr/include", folder / "usr/include")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
