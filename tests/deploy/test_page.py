"""The commands of docs/deploy.md, "In production"."""

import re
import shlex
import sys
from pathlib import Path

import PIL.Image
from page_blocks import read_blocks
from programs import run
from serve_process import running_service

BLOCKS = [block.text for block in read_blocks("docs/deploy.md")]


def block_with(text: str) -> str:
    (found,) = (block for block in BLOCKS if text in block)
    return found


def run_script(script: str, folder: Path, programs: dict[str, str], **variables: str) -> str:
    """Run a script in a folder, with shell functions in place of some programs. Return its stdout."""
    functions = "".join(f"{name}() {{ {body}; }}\n" for name, body in programs.items())
    return run("bash", "-ec", functions + script, cwd=folder, env=variables).stdout


def test_production_takes_the_key_and_speaks_https(tmp_path: Path, artifact_path: Path) -> None:
    programs = {"lensbox": f'{sys.executable} -m lensbox.cli "$@"', "python": f'{sys.executable} "$@"'}
    export = {"lensbox": f'test "$1" = export && mkdir artifacts && cp {artifact_path} "$3"'}
    block = block_with("openssl req").replace("\\\n", " ")
    prepare, serve, _ = re.split(r"^lensbox serve(?P<options>.*)\n", block, flags=re.MULTILINE)
    key = run_script(f'{prepare}\necho "$KEY"', tmp_path, programs | export).split()[-1]
    PIL.Image.new("L", (64, 48), 128).save(tmp_path / "photo.jpg")
    assert "--host 0.0.0.0 --port 8000" in serve
    local = serve.replace("--host 0.0.0.0 --port 8000", "")
    for name in ("artifacts/detector.pt", "keys", "certificate.pem", "key.pem"):
        local = local.replace(f" {name}", f" {tmp_path / name}")
    artifact, *options = shlex.split(local)[1:]
    with running_service(Path(artifact), *options) as url:
        asking = block_with("curl --cacert").replace(
            "https://localhost:8000", url.replace("127.0.0.1", "localhost")
        )
        answers = run_script(asking.replace("curl ", "curl -sf "), tmp_path, programs, KEY=key)
    assert answers.count('"detections":') == 2
