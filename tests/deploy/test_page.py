"""The commands of docs/deploy.md. There is no cluster here: Helm renders and does not install."""

import json
import os
import re
import shlex
import shutil
import sys
from pathlib import Path

import PIL.Image
import pytest
from deployed import DEPLOY, REPOSITORY, documents, instructions, read_yaml, settings_of, validate
from page_blocks import read_blocks
from programs import run
from serve_process import running_service

BLOCKS = [block.text for block in read_blocks("docs/deploy.md")]
HELM = os.environ.get("LENSBOX_HELM") or shutil.which("helm")


def block_with(text: str) -> str:
    (found,) = (block for block in BLOCKS if text in block)
    return found


def run_script(script: str, folder: Path, programs: dict[str, str], **variables: str) -> str:
    """Run a script in a folder, with shell functions in place of some programs. Return its stdout."""
    functions = "".join(f"{name}() {{ {body}; }}\n" for name, body in programs.items())
    return run("bash", "-ec", functions + script, cwd=folder, env=variables).stdout


def test_production_takes_the_key_and_speaks_https(tmp_path: Path, artifact_path: Path) -> None:
    programs = {"lensbox": f'{sys.executable} -m lensbox.common "$@"', "python": f'{sys.executable} "$@"'}
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


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_an_image_serves_what_the_page_exports(kind: str) -> None:
    dockerfile = DEPLOY / "docker" / f"{kind}.Dockerfile"
    lines = block_with(f"-f deploy/docker/{kind}.Dockerfile").splitlines()
    export, build, start = (shlex.split(line) for line in lines)
    assert build == ["docker", "build", "-f", str(dockerfile.relative_to(REPOSITORY)), "-t", start[-1], "."]
    (served,) = (json.loads(rest) for name, rest in instructions(dockerfile) if name == "CMD")
    folder, mounted, _ = start[start.index("-v") + 1].removeprefix("$PWD/").split(":")
    assert export == ["lensbox", "export", "--output", served[1].replace(mounted, folder)]
    compose = read_yaml(DEPLOY / ("compose.gpu.yaml" if kind == "cuda" else "compose.yaml"))
    assert compose["services"]["lensbox"]["command"][:2] == served[:2]


def test_kubernetes_finds_what_the_page_makes(tmp_path: Path) -> None:
    if HELM is None:
        pytest.skip("there is no program helm")
    (tmp_path / "deploy").symlink_to(DEPLOY)
    # `helm upgrade --install NAME CHART ...` becomes `helm template NAME CHART ...`.
    programs = {"lensbox": ":", "kubectl": 'echo "kubectl $*" >&2', "helm": f'shift 2; {HELM} template "$@"'}
    block = block_with("helm upgrade --install")
    resources = {document["kind"]: document for document in documents(run_script(block, tmp_path, programs))}
    pod = resources["Deployment"]["spec"]["template"]["spec"]
    settings = settings_of(pod["containers"][0]["args"])
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    # The page makes each secret and the claim under the name that the pod mounts.
    assert f"create secret generic {volumes['keys']['secret']['secretName']} --from-file=keys=" in block
    assert f"create secret tls {volumes['tls']['secret']['secretName']} " in block
    claim, shell = documents((DEPLOY / "helm" / "models.yaml").read_text(encoding="utf-8"))
    validate(claim)
    validate(shell)
    name = claim["metadata"]["name"]
    assert volumes["models"]["persistentVolumeClaim"]["claimName"] == name
    assert shell["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] == name
    assert f"kubectl cp artifacts/detector.pt {shell['metadata']['name']}:{settings.artifact}\n" in block
    # An upgrade with the lines for GPUs keeps the other settings.
    with (tmp_path / "detector.yaml").open("a", encoding="utf-8") as file:
        file.write(block_with("gpu: {count: 1}"))
    upgraded = run_script(block.splitlines()[-1], tmp_path, programs)
    assert "--api-keys-file" in upgraded
    assert "nvidia.com/gpu: 1" in upgraded
