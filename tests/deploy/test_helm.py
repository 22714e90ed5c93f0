"""The Helm chart: each kind of pod it makes is one that Kubernetes and the service take.

Needs the program helm, in PATH or named by LENSBOX_HELM (`python tests/deploy/get_helm.py FOLDER`);
LENSBOX_REQUIRE_HELM=1 makes its absence a failure.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from deployed import DEPLOY, PORT, USER, documents, project, read_yaml, settings_of, validate

from lensbox.serve.http.app import create_app
from lensbox.serve.observability.metrics import Metrics, ServiceState
from lensbox.serve.settings import Settings

CHART = DEPLOY / "helm" / "lensbox"
HELM = os.environ.get("LENSBOX_HELM") or shutil.which("helm")
GPU = {"gpu": {"count": 2, "runtimeClassName": "nvidia"}, "settings": {"frontends": 4}}
ALL: dict[str, Any] = {
    **GPU,
    "apiKeys": {"secretName": "names-and-keys"},
    "autoscaling": {"enabled": True, "targetQueueJobs": 8},
    "serviceMonitor": {
        "enabled": True,
        "labels": {"release": "prometheus"},
        "keySecret": {"name": "prometheus", "key": "key"},
        "tlsConfig": {"serverName": "detector.example.com"},
    },
    "tls": {"secretName": "certificate"},
    "ingress": {
        "enabled": True,
        "className": "nginx",
        "host": "detector.example.com",
        "tlsSecretName": "outside",
        "annotations": {"nginx.ingress.kubernetes.io/proxy-body-size": "16m"},
    },
    "networkPolicy": {
        "enabled": True,
        "from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}}],
        "egress": [{"to": [{"podSelector": {"matchLabels": {"app": "collector"}}}]}],
    },
    "env": [{"name": "FORWARDED_ALLOW_IPS", "value": "10.0.0.0/8"}],
    "imagePullSecrets": [{"name": "registry"}],
    "podAnnotations": {"note": "a"},
    "podLabels": {"team": "vision"},
    "nodeSelector": {"kind": "gpu"},
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
    ],
}

if HELM is None and os.environ.get("LENSBOX_REQUIRE_HELM") == "1":
    raise FileNotFoundError("LENSBOX_REQUIRE_HELM=1, but there is no program helm")
pytestmark = pytest.mark.skipif(HELM is None, reason="there is no program helm")


def helm(*arguments: str, values: dict[str, Any] | None = None) -> "subprocess.CompletedProcess[str]":
    """Runs it on the chart, with the values on its stdin."""
    assert HELM is not None
    command = [HELM, arguments[0], *(["detector"] if arguments[0] == "template" else []), str(CHART)]
    command += [*arguments[1:], "--values", "-"]
    # JSON is YAML.
    return subprocess.run(
        command, input=json.dumps(values or {}), capture_output=True, text=True, check=False
    )


def rendered(values: dict[str, Any] | None = None) -> dict[str, Any]:
    """The resources by kind."""
    ran = helm("template", values=values)
    assert ran.returncode == 0, ran.stderr
    return {document["kind"]: document for document in documents(ran.stdout)}


def container_of(resources: dict[str, Any]) -> Any:
    (container,) = resources["Deployment"]["spec"]["template"]["spec"]["containers"]
    return container


@pytest.mark.parametrize("values", [{}, GPU, ALL], ids=["cpu", "gpu", "all"])
def test_kubernetes_knows_every_field(values: dict[str, Any]) -> None:
    resources = rendered(values)
    monitor = resources.pop("ServiceMonitor", None)
    for resource in resources.values():
        validate(resource)
    assert {"Deployment", "PodDisruptionBudget", "Service", "ServiceAccount"} <= set(resources)
    assert ("HorizontalPodAutoscaler" in resources) == (values is ALL) == (monitor is not None)
    ran = helm("lint", "--strict", values=values)
    assert ran.returncode == 0, ran.stdout


def test_a_pod_on_cpus_starts_a_service() -> None:
    container = container_of(rendered())
    settings = settings_of(container["args"])
    assert settings.device == "cpu"
    assert settings.threads == int(container["resources"]["limits"]["cpu"])
    assert container["image"].endswith("-cpu")
    mounts = {mount["mountPath"]: mount.get("readOnly", False) for mount in container["volumeMounts"]}
    assert mounts == {"/models": True, "/tmp": False}
    assert str(settings.artifact).startswith("/models/")
    assert "nvidia" not in json.dumps(container)


def test_a_pod_on_gpus_asks_for_them() -> None:
    resources = rendered(GPU)
    container = container_of(resources)
    settings = settings_of(container["args"])
    assert (settings.devices, settings.frontends) == ("all", 4)
    assert container["image"].endswith("-cuda")
    assert [container["resources"][side]["nvidia.com/gpu"] for side in ("requests", "limits")] == [2, 2]
    assert resources["Deployment"]["spec"]["template"]["spec"]["runtimeClassName"] == "nvidia"


def test_keys_come_from_a_secret() -> None:
    resources = rendered(ALL)
    keys = settings_of(container_of(resources)["args"]).api_keys_file
    assert keys is not None
    mounts = {mount["mountPath"]: mount["name"] for mount in container_of(resources)["volumeMounts"]}
    volumes = {
        volume["name"]: volume for volume in resources["Deployment"]["spec"]["template"]["spec"]["volumes"]
    }
    secret = volumes[mounts[str(keys.parent)]]["secret"]
    assert secret == {"secretName": "names-and-keys", "items": [{"key": "keys", "path": keys.name}]}
    (endpoint,) = resources["ServiceMonitor"]["spec"]["endpoints"]
    assert endpoint["authorization"] == {"credentials": {"name": "prometheus", "key": "key"}}


def test_the_ingress_leads_to_the_service() -> None:
    assert not {"Ingress", "NetworkPolicy"} & set(rendered())
    resources = rendered(ALL)
    ingress = resources["Ingress"]["spec"]
    assert ingress["ingressClassName"] == "nginx"
    assert ingress["tls"] == [{"hosts": ["detector.example.com"], "secretName": "outside"}]
    (rule,) = ingress["rules"]
    paths = {path["path"]: path["pathType"] for path in rule["http"]["paths"]}
    assert paths.pop("/") == paths.pop("/docs") == paths.pop("/openapi.json") == "Exact"
    assert paths == {"/page": "Prefix", "/v1": "Prefix", "/v2": "Prefix"}  # and not /metrics
    path = rule["http"]["paths"][0]
    (port,) = resources["Service"]["spec"]["ports"]
    assert rule["host"] == "detector.example.com"
    assert path["backend"]["service"] == {
        "name": resources["Service"]["metadata"]["name"],
        "port": {"name": port["name"]},
    }
    plain = rendered({"ingress": {"enabled": True, "host": "a.example"}})["Ingress"]["spec"]
    assert not {"tls", "ingressClassName"} & set(plain)
    ran = helm("template", values={"ingress": {"enabled": True}})
    assert ran.returncode != 0
    assert "ingress.host must be the name by which clients ask" in ran.stderr


def test_a_network_policy_is_about_the_pods_and_their_port() -> None:
    resources = rendered(ALL)
    policy = resources["NetworkPolicy"]["spec"]
    labels = resources["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    (incoming,) = policy["ingress"]
    (port,) = container_of(resources)["ports"]
    assert incoming["ports"] == [{"port": port["name"], "protocol": "TCP"}]
    assert incoming["from"] == ALL["networkPolicy"]["from"]
    assert policy["egress"] == ALL["networkPolicy"]["egress"]
    closed = rendered({"networkPolicy": {"enabled": True}})["NetworkPolicy"]["spec"]
    assert closed["policyTypes"] == ["Ingress", "Egress"]
    assert closed["egress"] == []
    assert "from" not in closed["ingress"][0]


def test_https_is_spoken_by_all_or_by_none() -> None:
    resources = rendered(ALL)
    container = container_of(resources)
    settings = settings_of(container["args"])
    assert settings.tls_certificate is not None
    assert settings.tls_key is not None
    (volume,) = (
        volume["name"]
        for volume in resources["Deployment"]["spec"]["template"]["spec"]["volumes"]
        if volume.get("secret") == {"secretName": "certificate"}
    )
    (mount,) = (mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] == volume)
    # The entries that a secret of type kubernetes.io/tls has.
    assert (str(settings.tls_certificate), str(settings.tls_key)) == (f"{mount}/tls.crt", f"{mount}/tls.key")
    (endpoint,) = resources["ServiceMonitor"]["spec"]["endpoints"]
    assert (endpoint["scheme"], endpoint["tlsConfig"]) == ("https", {"serverName": "detector.example.com"})
    for values, scheme in ((ALL, "HTTPS"), ({}, "HTTP")):
        container = container_of(rendered(values))
        probes = (container[f"{name}Probe"]["httpGet"] for name in ("startup", "readiness", "liveness"))
        assert {probe["scheme"] for probe in probes} == {scheme}
    assert settings_of(container["args"]).tls_certificate is None


def test_large_numbers_stay_whole() -> None:
    values = {
        "settings": {"max-pixels": 80_000_000, "send-timeout": 0.5, "cors-origins": "https://a.example"},
        "autoscaling": {"enabled": True, "targetQueueJobs": 2_000_000},
    }
    resources = rendered(values)
    settings = settings_of(container_of(resources)["args"])
    assert (settings.max_pixels, settings.send_timeout) == (80_000_000, 0.5)
    assert settings.cors_origins == "https://a.example"
    metrics = resources["HorizontalPodAutoscaler"]["spec"]["metrics"]
    assert "2000000" in [metric["pods"]["target"]["averageValue"] for metric in metrics if "pods" in metric]


@pytest.mark.parametrize(
    "volume",
    [{"hostPath": {"path": "/data"}}, {"persistentVolumeClaim": {"claimName": "mine"}}],
    ids=["other", "claim"],
)
def test_a_volume_has_one_source(volume: dict[str, Any]) -> None:
    deployment = rendered({"artifact": {"volume": volume}})["Deployment"]
    (models,) = (v for v in deployment["spec"]["template"]["spec"]["volumes"] if v["name"] == "models")
    (kind,) = volume
    assert set(models) == {"name", kind}
    assert models[kind].items() >= volume[kind].items()


def test_a_path_may_have_any_signs() -> None:
    path = "/models/new: a #1.onnx"
    assert str(settings_of(container_of(rendered({"artifact": {"path": path}}))["args"]).artifact) == path


def test_the_environment_and_the_update_can_be_set() -> None:
    update = {"maxUnavailable": 1, "maxSurge": 0}
    resources = rendered({**ALL, "rollingUpdate": update})
    assert container_of(resources)["env"] == ALL["env"]
    assert resources["Deployment"]["spec"]["strategy"] == {"rollingUpdate": update}


def test_labels_may_stand_for_versions_of_a_build(tmp_path: Path) -> None:
    chart = shutil.copytree(CHART, tmp_path / "lensbox")
    about = chart / "Chart.yaml"
    about.write_text(about.read_text(encoding="utf-8").replace("0.1.0", "0.1.0+abc"), encoding="utf-8")
    assert HELM is not None
    command = [HELM, "template", "detector", str(chart)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    for resource in documents(ran.stdout):
        validate(resource)
        labels = resource["metadata"]["labels"]
        assert labels["helm.sh/chart"] == "lensbox-0.1.0_abc"  # a label has no "+"
        assert labels["app.kubernetes.io/version"] == "0.1.0_abc"


def test_probes_ask_what_the_service_answers(tmp_path: Path) -> None:
    container = container_of(rendered())
    paths = {
        name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "readiness", "liveness")
    }
    assert paths == {"startup": "/readyz", "readiness": "/readyz", "liveness": "/livez"}
    routes = create_app(Settings(artifact=tmp_path / "none")).openapi()["paths"]
    assert set(paths.values()) <= set(routes)
    (port,) = container["ports"]
    assert port["containerPort"] == PORT
    assert {container[f"{name}Probe"]["httpGet"]["port"] for name in paths} == {port["name"]}


def test_the_service_and_the_budget_find_the_pods() -> None:
    resources = rendered(ALL)
    labels = resources["Deployment"]["spec"]["template"]["metadata"]["labels"]
    selectors = [
        resources["Service"]["spec"]["selector"],
        resources["Deployment"]["spec"]["selector"]["matchLabels"],
        resources["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
    ]
    assert all(selector.items() <= labels.items() for selector in selectors)
    monitor = resources["ServiceMonitor"]
    assert monitor["apiVersion"] == "monitoring.coreos.com/v1"
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert (
        monitor["spec"]["selector"]["matchLabels"].items()
        <= resources["Service"]["metadata"]["labels"].items()
    )
    (endpoint,) = monitor["spec"]["endpoints"]
    (port,) = resources["Service"]["spec"]["ports"]
    assert (endpoint["port"], endpoint["path"]) == (port["name"], "/metrics")
    assert port["targetPort"] == container_of(resources)["ports"][0]["name"]


@pytest.mark.parametrize(("timeout", "wait"), [(30, 5), (120, 0)])
def test_a_pod_has_time_to_end(timeout: int, wait: int) -> None:
    values = {"settings": {"shutdown-timeout": timeout}, "preStopSeconds": wait}
    resources = rendered(values)
    container = container_of(resources)
    assert settings_of(container["args"]).shutdown_timeout == timeout
    grace = resources["Deployment"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace > timeout + wait
    hook = {"preStop": {"exec": {"command": ["sleep", str(wait)]}}} if wait else None
    assert container.get("lifecycle") == hook


def test_a_pod_has_no_rights() -> None:
    resources = rendered()
    pod = resources["Deployment"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == USER
    assert pod["automountServiceAccountToken"] is False
    assert container_of(resources)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_the_autoscaler_asks_for_a_metric_that_exists() -> None:
    resources = rendered(ALL)
    scaler = resources["HorizontalPodAutoscaler"]
    assert "replicas" not in resources["Deployment"]["spec"]
    assert scaler["spec"]["scaleTargetRef"]["name"] == resources["Deployment"]["metadata"]["name"]
    (name,) = (
        metric["pods"]["metric"]["name"] for metric in scaler["spec"]["metrics"] if metric["type"] == "Pods"
    )
    metrics = Metrics()
    metrics.watch(lambda: ServiceState(True, 0, 0))
    assert name in {family.name for family in metrics.exposed().collect()}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"settings": {"port": 9000}}, "'port'"),
        ({"settings": {"--threads": 2}}, "'--threads'"),
        ({"settings": {"max-pixel": 1_000_000}}, "'max-pixel'"),
        ({"gpu": {"counts": 1}}, "counts"),
        ({"replicas": 3}, "replicas"),
        ({"artifact": {"path": "/tmp/detector.pt"}}, "path"),
        ({"autoscaling": {"enabled": True, "targetCPU": None}}, "targetCPU or a targetQueueJobs"),
    ],
)
def test_wrong_values_are_refused(values: dict[str, Any], message: str) -> None:
    ran = helm("template", values=values)
    assert ran.returncode != 0
    assert message in ran.stderr


def test_versions_are_those_of_the_project() -> None:
    assert read_yaml(CHART / "Chart.yaml")["appVersion"] == project()["project"]["version"]
