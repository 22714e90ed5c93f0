"""The Helm chart: Kubernetes and the service accept the rendered resources.

Needs the program helm, in PATH or named by LENSBOX_HELM (`python tests/deploy/get_helm.py FOLDER`);
LENSBOX_REQUIRE_HELM=1 makes its absence a failure.
"""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
from deployed import DEPLOY, PORT, USER, documents, project, read_yaml, settings_of, validate
from programs import Ended, run

from lensbox.serve.cli import serve
from lensbox.serve.http.app import create_app
from lensbox.serve.observability.metrics import Metrics, ServiceState
from lensbox.serve.settings import Settings

CHART = DEPLOY / "helm" / "lensbox"
SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
SET_BY_THE_CHART = {
    *("api-keys-file", "artifact", "device", "devices", "host", "port", "tls-certificate", "tls-key")
}
HELM = os.environ.get("LENSBOX_HELM") or shutil.which("helm")
GPU = {"gpu": {"count": 2, "runtimeClassName": "nvidia"}, "settings": {"frontends": 4}}
ALL: dict[str, Any] = {
    **GPU,
    "apiKeys": {"secretName": "names-and-keys"},
    "autoscaling": {"enabled": True, "targetQueueJobs": 2_000_000},
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
    "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0},
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


def helm(command: str, *options: str, values: dict[str, Any] | None = None, chart: Path = CHART) -> Ended:
    """Run Helm on the chart, with the values on its stdin."""
    if HELM is None:
        pytest.skip("there is no program helm")
    name = ["detector"] if command == "template" else []
    given = json.dumps(values or {})  # JSON is YAML
    return run(HELM, command, *name, chart, *options, "--values", "-", input=given, code=None)


def rendered(values: dict[str, Any] | None = None, chart: Path = CHART) -> dict[str, Any]:
    """Return the resources by kind."""
    ran = helm("template", values=values, chart=chart)
    assert ran.returncode == 0, ran.stderr
    return {document["kind"]: document for document in documents(ran.stdout)}


def pod_of(resources: dict[str, Any]) -> Any:
    return resources["Deployment"]["spec"]["template"]["spec"]


def container_of(resources: dict[str, Any]) -> Any:
    (container,) = pod_of(resources)["containers"]
    return container


def settings_in(resources: dict[str, Any]) -> Settings:
    return settings_of(container_of(resources)["args"])


@pytest.mark.parametrize("values", [{}, GPU, ALL], ids=["cpu", "gpu", "all"])
def test_kubernetes_knows_every_field(values: dict[str, Any]) -> None:
    resources = rendered(values)
    monitor = resources.pop("ServiceMonitor", None)
    for resource in resources.values():
        validate(resource)
    assert {"Deployment", "PodDisruptionBudget", "Service", "ServiceAccount"} <= set(resources)
    optional = {"HorizontalPodAutoscaler", "Ingress", "NetworkPolicy"}
    assert optional & set(resources) == (optional if values is ALL else set())
    assert (monitor is not None) == (values is ALL)
    ran = helm("lint", "--strict", values=values)
    assert ran.returncode == 0, ran.stdout


@pytest.mark.parametrize(
    ("values", "device", "image"), [({}, "cpu", "-cpu"), (GPU, "cuda", "-cuda")], ids=["cpu", "gpu"]
)
def test_the_default_artifact_runs_on_the_device(values: dict[str, Any], device: str, image: str) -> None:
    resources = rendered(values)
    container, settings = container_of(resources), settings_in(resources)
    assert container["image"].endswith(image)
    assert settings.artifact.is_relative_to("/models")
    if device == "cpu":
        assert settings.device == "cpu"
        assert settings.threads == int(container["resources"]["limits"]["cpu"])
        assert "nvidia" not in json.dumps(container)
        mounts = {mount["mountPath"]: mount.get("readOnly", False) for mount in container["volumeMounts"]}
        assert mounts == {"/models": True, "/tmp": False}
    else:
        assert settings.artifact.suffix == ".pt"  # an ONNX file runs only on a CPU
        assert (settings.devices, settings.frontends) == ("all", 4)
        assert [container["resources"][side]["nvidia.com/gpu"] for side in ("requests", "limits")] == [2, 2]
        assert pod_of(resources)["runtimeClassName"] == "nvidia"


def test_keys_and_certificates_come_from_secrets() -> None:
    resources = rendered(ALL)
    settings = settings_in(resources)
    mounts = {mount["name"]: mount["mountPath"] for mount in container_of(resources)["volumeMounts"]}
    secrets = {
        mounts[volume["name"]]: volume["secret"]
        for volume in pod_of(resources)["volumes"]
        if "secret" in volume
    }
    keys, certificate = Path(settings.api_keys_file or ""), Path(settings.tls_certificate or "")
    assert secrets == {
        str(keys.parent): {"secretName": "names-and-keys", "items": [{"key": "keys", "path": keys.name}]},
        str(certificate.parent): {"secretName": "certificate"},
    }
    # The entries of a secret of type kubernetes.io/tls.
    assert (certificate.name, settings.tls_key) == ("tls.crt", certificate.with_name("tls.key"))
    (endpoint,) = resources["ServiceMonitor"]["spec"]["endpoints"]
    assert endpoint["authorization"] == {"credentials": {"name": "prometheus", "key": "key"}}
    assert (endpoint["scheme"], endpoint["tlsConfig"]) == ("https", {"serverName": "detector.example.com"})


@pytest.mark.parametrize(("values", "scheme"), [({}, "HTTP"), (ALL, "HTTPS")], ids=["plain", "tls"])
def test_probes_ask_what_the_service_answers(values: dict[str, Any], scheme: str, tmp_path: Path) -> None:
    container = container_of(rendered(values))
    (port,) = container["ports"]
    assert port["containerPort"] == PORT
    wanted = {"startup": "/readyz", "readiness": "/readyz", "liveness": "/livez"}
    probes = {name: container[f"{name}Probe"]["httpGet"] for name in wanted}
    assert probes == {
        name: {"path": path, "port": port["name"], "scheme": scheme} for name, path in wanted.items()
    }
    assert set(wanted.values()) <= set(create_app(Settings(artifact=tmp_path / "none")).openapi()["paths"])


def test_the_ingress_leads_to_the_service_without_metrics() -> None:
    resources = rendered(ALL)
    ingress = resources["Ingress"]["spec"]
    assert ingress["ingressClassName"] == "nginx"
    assert ingress["tls"] == [{"hosts": ["detector.example.com"], "secretName": "outside"}]
    (rule,) = ingress["rules"]
    assert rule["host"] == "detector.example.com"
    assert {path["path"]: path["pathType"] for path in rule["http"]["paths"]} == {
        **dict.fromkeys(("/", "/docs", "/openapi.json"), "Exact"),
        **dict.fromkeys(("/page", "/v1", "/v2"), "Prefix"),
    }
    (port,) = resources["Service"]["spec"]["ports"]
    backend = {"name": resources["Service"]["metadata"]["name"], "port": {"name": port["name"]}}
    assert all(path["backend"]["service"] == backend for path in rule["http"]["paths"])
    plain = rendered({"ingress": {"enabled": True, "host": "a.example"}})["Ingress"]["spec"]
    assert not {"tls", "ingressClassName"} & set(plain)


def test_the_network_policy_selects_pods_and_port() -> None:
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


def test_values_reach_the_service_unchanged() -> None:
    path = "/models/new: a #1.onnx"
    given = {"max-pixels": 80_000_000, "send-timeout": 0.5, "cors-origins": "https://a.example"}
    settings = settings_in(rendered({"settings": given, "artifact": {"path": path}}))
    assert (settings.max_pixels, settings.send_timeout) == (80_000_000, 0.5)
    assert (settings.cors_origins, str(settings.artifact)) == ("https://a.example", path)
    resources = rendered(ALL)
    assert container_of(resources)["env"] == ALL["env"]
    assert resources["Deployment"]["spec"]["strategy"] == {"rollingUpdate": ALL["rollingUpdate"]}


@pytest.mark.parametrize(
    "volume",
    [{"hostPath": {"path": "/data"}}, {"persistentVolumeClaim": {"claimName": "mine"}}],
    ids=["other", "claim"],
)
def test_a_volume_has_one_source(volume: dict[str, Any]) -> None:
    volumes = pod_of(rendered({"artifact": {"volume": volume}}))["volumes"]
    (models,) = (volume for volume in volumes if volume["name"] == "models")
    (kind,) = volume
    assert set(models) == {"name", kind}
    assert models[kind].items() >= volume[kind].items()


def test_labels_allow_versions_of_a_build(tmp_path: Path) -> None:
    assert read_yaml(CHART / "Chart.yaml")["appVersion"] == project()["project"]["version"]
    chart = shutil.copytree(CHART, tmp_path / "lensbox")
    about = chart / "Chart.yaml"
    about.write_text(about.read_text(encoding="utf-8").replace("0.1.0", "0.1.0+abc"), encoding="utf-8")
    for resource in rendered(chart=chart).values():
        validate(resource)
        labels = resource["metadata"]["labels"]
        assert labels["helm.sh/chart"] == "lensbox-0.1.0_abc"  # a label has no "+"
        assert labels["app.kubernetes.io/version"] == "0.1.0_abc"


def test_selectors_find_the_pods() -> None:
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
    wanted = monitor["spec"]["selector"]["matchLabels"]
    assert wanted.items() <= resources["Service"]["metadata"]["labels"].items()
    (endpoint,) = monitor["spec"]["endpoints"]
    (port,) = resources["Service"]["spec"]["ports"]
    assert (endpoint["port"], endpoint["path"]) == (port["name"], "/metrics")
    assert port["targetPort"] == container_of(resources)["ports"][0]["name"]


@pytest.mark.parametrize(("timeout", "wait"), [(30, 5), (120, 0)])
def test_a_pod_has_time_to_shut_down(timeout: int, wait: int) -> None:
    resources = rendered({"settings": {"shutdown-timeout": timeout}, "preStopSeconds": wait})
    assert settings_in(resources).shutdown_timeout == timeout
    assert pod_of(resources)["terminationGracePeriodSeconds"] > timeout + wait
    hook = {"preStop": {"exec": {"command": ["sleep", str(wait)]}}} if wait else None
    assert container_of(resources).get("lifecycle") == hook


def test_a_pod_runs_unprivileged() -> None:
    resources = rendered()
    pod = pod_of(resources)
    assert pod["securityContext"].items() >= {"runAsNonRoot": True, "runAsUser": USER}.items()
    assert pod["automountServiceAccountToken"] is False
    assert container_of(resources)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_the_autoscaler_asks_for_a_metric_that_exists() -> None:
    resources = rendered(ALL)
    scaler = resources["HorizontalPodAutoscaler"]["spec"]
    assert "replicas" not in resources["Deployment"]["spec"]
    assert scaler["scaleTargetRef"]["name"] == resources["Deployment"]["metadata"]["name"]
    (metric,) = (metric["pods"] for metric in scaler["metrics"] if metric["type"] == "Pods")
    assert metric["target"]["averageValue"] == "2000000"
    metrics = Metrics()
    metrics.watch(lambda: ServiceState(True, 0, 0))
    assert metric["metric"]["name"] in {family.name for family in metrics.exposed().collect()}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"autoscaling": {"enabled": True, "targetCPU": None}}, "targetCPU or a targetQueueJobs"),
        ({"ingress": {"enabled": True}}, "ingress.host must be the host name that clients use"),
        ({**GPU, "artifact": {"path": "/models/a.onnx"}}, "must name a file that runs on a GPU"),
        ({"settings": {"max-pixel": 1_000_000}}, "'max-pixel'"),
    ],
)
def test_values_that_cannot_work_are_refused(values: dict[str, Any], message: str) -> None:
    ran = helm("template", values=values)
    assert ran.returncode != 0
    assert message in ran.stderr


def test_settings_are_the_options_of_the_service() -> None:
    options = [parameter for parameter in serve.params if isinstance(parameter, click.Option)]
    names = {name.removeprefix("--") for option in options for name in option.opts}
    assert set(SCHEMA["properties"]["settings"]["propertyNames"]["enum"]) == names - SET_BY_THE_CHART


@pytest.mark.parametrize(
    "values",
    [
        {"settings": {"port": 9000}},
        {"settings": {"--threads": 2}},
        {"gpu": {"counts": 1}},
        {"replicas": 3},
        {"artifact": {"path": "/tmp/detector.pt", "volume": {"emptyDir": {}}}},
    ],
)
def test_the_schema_refuses_misspelt_values(values: dict[str, Any]) -> None:
    defaults = read_yaml(CHART / "values.yaml")
    jsonschema.validate(defaults, SCHEMA)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**defaults, **values}, SCHEMA)
