"""The manifest for KubeRay: its application's arguments, and pods that Kubernetes takes."""

import re
from typing import Any

import pytest
import yaml
from deployed import DEPLOY, PORT, USER, read_yaml, validate

from lensbox.serve import ray_proxy
from lensbox.serve.ray_arguments import read_arguments

SERVICE = read_yaml(DEPLOY / "kuberay" / "rayservice.yaml")["spec"]
CLUSTER = SERVICE["rayClusterConfig"]
PODS = [group["template"]["spec"] for group in (CLUSTER["headGroupSpec"], *CLUSTER["workerGroupSpecs"])]


def application() -> Any:
    (application,) = yaml.safe_load(SERVICE["serveConfigV2"])["applications"]
    return application


def test_the_application_takes_its_arguments() -> None:
    settings, scaling = read_arguments(application()["args"])
    assert application()["import_path"] == "lensbox.serve.ray_app:app"
    assert str(settings.artifact).startswith("/models/")
    (worker,) = CLUSTER["workerGroupSpecs"]
    limits = worker["template"]["spec"]["containers"][0]["resources"]["limits"]
    # The cluster has room for all replicas.
    gpus, cpus = scaling.max_replicas * scaling.num_gpus, scaling.max_replicas * scaling.num_cpus
    assert gpus <= worker["maxReplicas"] * limits["nvidia.com/gpu"]
    assert cpus <= worker["maxReplicas"] * int(limits["cpu"])
    assert worker["template"]["spec"]["terminationGracePeriodSeconds"] > settings.shutdown_timeout


def test_ray_knows_the_configuration() -> None:
    schema = pytest.importorskip("ray.serve.schema", reason="ray is not installed (lensbox[ray])")
    schema.ServeDeploySchema.model_validate(yaml.safe_load(SERVICE["serveConfigV2"]))


@pytest.mark.parametrize("pod", PODS, ids=["head", "worker"])
def test_pods_are_valid_and_restricted(pod: Any) -> None:
    validate({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": pod})
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == USER
    (container,) = pod["containers"]
    environment = {entry["name"]: entry["value"] for entry in container["env"]}
    module, name = environment["RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"].split(":")
    assert module == ray_proxy.__name__
    assert callable(getattr(ray_proxy, name))
    assert {"name": "serve", "containerPort": PORT} in container["ports"]
    assert container["image"].endswith("-ray")


def test_ray_is_of_the_version_in_the_image() -> None:
    text = (DEPLOY / "docker" / "ray.Dockerfile").read_text(encoding="utf-8")
    version = re.search(r'"ray\[serve\]==(.*)"', text)
    assert version is not None
    assert CLUSTER["rayVersion"] == version.group(1)
