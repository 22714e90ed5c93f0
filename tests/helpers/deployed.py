"""Constants of the project that the files in `deploy/` must repeat, and readers of these files."""

import shlex
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest brings it

from lensbox.serve.cli import serve
from lensbox.serve.settings import Settings

REPOSITORY = Path(__file__).parents[2]
DEPLOY = REPOSITORY / "deploy"
KUBERNETES = ("1.27", "1.30", "1.33", "1.37")  # the oldest that the chart takes, and later ones
PORT = 8000
USER = 10001


def project() -> dict[str, Any]:
    """Return the content of pyproject.toml."""
    table: dict[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    return table


def documents(text: str) -> list[Any]:
    """Return the documents of a YAML file, without empty ones."""
    return [document for document in yaml.safe_load_all(text) if document]


def read_yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def validate(resource: Any) -> None:
    """Check a resource against the schemas of several versions of Kubernetes; no field may be unknown."""
    for version in KUBERNETES:
        kubernetes_validate.validate(resource, version, strict=True)


def settings_of(arguments: list[str]) -> Settings:
    """Return the settings that `lensbox serve` reads from arguments. Raises click's errors."""
    context = serve.make_context("serve", list(arguments))
    values = {name: context.params[name] for name in Settings.__dataclass_fields__}
    return Settings(**values)


def instructions(dockerfile: Path) -> list[tuple[str, str]]:
    """Return name and arguments of each instruction, continued lines joined."""
    text = dockerfile.read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    pairs = (line.split(maxsplit=1) for line in joined.splitlines())
    return [(name, " ".join(shlex.split(rest)) if name == "RUN" else rest) for name, rest in pairs]
