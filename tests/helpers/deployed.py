"""Readers of the files in `deploy/`, and constants that these files must repeat."""

from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml

from lensbox.serve.cli import read_settings, serve
from lensbox.serve.settings import Settings

REPOSITORY = Path(__file__).parents[2]
DEPLOY = REPOSITORY / "deploy"
PORT = 8000
USER = 10001
_KUBERNETES = ("1.27", "1.30", "1.33", "1.37")


def read_documents(path: Path) -> list[Any]:
    """Return the documents of a YAML file."""
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def validate(resource: Any) -> None:
    """Check a resource against the schemas of several versions of Kubernetes; no field may be unknown."""
    for version in _KUBERNETES:
        kubernetes_validate.validate(resource, version, strict=True)


def validate_pod(pod: Any) -> None:
    """Check the `spec` of a pod: valid, without root and without capabilities."""
    validate({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": pod})
    (container,) = pod["containers"]
    security = {**pod.get("securityContext", {}), **container["securityContext"]}
    assert (security["runAsNonRoot"], security["runAsUser"]) == (True, USER)
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert (security["allowPrivilegeEscalation"], security["capabilities"]) == (False, {"drop": ["ALL"]})


def settings_of(arguments: list[str]) -> Settings:
    """Return the settings that `lensbox serve` reads from arguments. Raises click's errors."""
    parameters: dict[str, Any] = dict(serve.make_context("serve", list(arguments)).params)
    return read_settings(parameters)
