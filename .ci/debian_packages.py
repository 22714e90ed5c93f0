"""Unpack packages of Debian or Ubuntu, and all that they depend on, into a folder, the root of a system:

    python .ci/debian_packages.py FOLDER --architecture arm64 libjpeg-dev libpng-dev

Without root's rights, and with lists and settings of apt of their own: the machine's stay as they are.
"""

import argparse
import platform
import subprocess
import tempfile
from pathlib import Path


def mirror(system: str, release: str, architecture: str) -> str:
    """Return the address of the mirror that apt uses for the packages of its own release."""
    if system == "ubuntu" and architecture not in ("amd64", "i386"):
        return "http://ports.ubuntu.com/ubuntu-ports"  # in one place, whatever mirror has the others
    command = ["apt-get", "indextargets", "--format", "$(SITE)", "Identifier: Packages"]
    command.append(f"Codename: {release}")
    for update in (["true"], ["apt-get", "-qq", "update"]):  # before which apt may know of none
        subprocess.run(update, check=True)
        sites = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        if sites:
            return sites[0]
    raise SystemExit(f"apt knows no mirror of {release}")


def unpack(
    packages: list[str],
    folder: Path,
    *,
    architecture: str | None = None,
    suite: str | None = None,
    dependencies: bool = True,
) -> None:
    """Write the files of the packages into the folder.

    architecture: Debian's name, such as "arm64"; by default this machine's.
    suite: codename of a release of this system; by default this machine's.
    dependencies: also unpack all packages that these depend on.
    """
    system = platform.freedesktop_os_release()
    if system["ID"] not in ("debian", "ubuntu"):
        raise SystemExit(f"expected Debian or Ubuntu, whose packages this takes, got {system['ID']}")
    own = subprocess.run(["dpkg", "--print-architecture"], check=True, capture_output=True, text=True).stdout
    architecture = architecture or own.strip()
    release = system["VERSION_CODENAME"]
    keys = f"/usr/share/keyrings/{system['ID']}-archive-keyring.gpg"
    components = "main universe" if system["ID"] == "ubuntu" else "main"
    with tempfile.TemporaryDirectory() as name:
        private = Path(name)
        for part in ("sources", "lists/partial", "cache/archives/partial"):
            (private / part).mkdir(parents=True)
        (private / "status").touch()  # nothing is installed, so every dependency is fetched
        source = f"deb [signed-by={keys}] {mirror(system['ID'], release, architecture)} {suite or release}"
        (private / "sources" / "packages.list").write_text(f"{source} {components}\n")
        settings = {
            "APT::Architecture": architecture,
            "APT::Architectures::": architecture,
            "APT::Sandbox::User": "root",  # no other user may write into the folder
            "Acquire::Languages": "none",
            "Debug::NoLocking": "true",
            "Dir::Cache": private / "cache",
            "Dir::Etc::SourceList": "/dev/null",
            "Dir::Etc::SourceParts": private / "sources",
            "Dir::State::Lists": private / "lists",
            "Dir::State::Status": private / "status",
        }
        options = [f"-o{key}={value}" for key, value in settings.items()]
        archives = private / "cache" / "archives"
        fetch = (
            ["install", "--yes", "--no-install-recommends", "--download-only"]
            if dependencies
            else ["download"]
        )
        for command in (["update"], [*fetch, *packages]):
            subprocess.run(["apt-get", "-qq", *options, *command], check=True, cwd=archives)
        for link in ("lib", "lib64"):  # as on every system since Debian 12
            (folder / "usr" / link).mkdir(parents=True, exist_ok=True)
            if not (folder / link).exists():
                (folder / link).symlink_to(f"usr/{link}")
        for package in sorted(archives.glob("*.deb")):
            files = subprocess.run(["dpkg-deb", "--fsys-tarfile", package], check=True, capture_output=True)
            keep = ("--keep-directory-symlink", "--no-same-owner", "--directory", folder)
            subprocess.run(["tar", "--extract", *keep], check=True, input=files.stdout)
    for path in list(folder.rglob("*")):
        # /lib/x would be a file of this machine.
        if path.is_symlink() and path.readlink().is_absolute():
            target = folder / path.readlink().relative_to("/")
            path.unlink()
            path.symlink_to(
                "../" * (len(path.relative_to(folder).parts) - 1) + str(target.relative_to(folder))
            )


def main() -> None:
    """Unpack the packages of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("packages", nargs="+")
    parser.add_argument("--architecture")
    parser.add_argument("--suite", help="a release of this system, such as trixie")
    given = parser.parse_args()
    unpack(given.packages, given.folder, architecture=given.architecture, suite=given.suite)


if __name__ == "__main__":
    main()
