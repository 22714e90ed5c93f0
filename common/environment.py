"""Environment variables: of a misspelt one nobody would learn that it has no effect."""

import logging
import os
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches

USED = ("LENSBOX_API_KEY", "LENSBOX_ONNXRUNTIME", "LENSBOX_OPS_LIBRARY", "LENSBOX_RUNNER")
# Of this repository's tests and documents: they may be set in a shell that runs a command as well.
_OF_DEVELOPMENT = re.compile(
    r"LENSBOX_(REQUIRE_\w+|FUZZ_SECONDS|HELM|READ_FILES|REPOSITORY_URL|TRITONSERVER)"
)
# What Kubernetes sets in each pod for a service whose name begins with "lensbox".
_OF_KUBERNETES = re.compile(r"\w+_SERVICE_(HOST|PORT(_\w+)?)|\w+_PORT(_\d+_\w+)?")

_log = logging.getLogger(__name__)


def warn_of_unknown_variables() -> None:
    """Warns of each variable LENSBOX_... that nothing reads, with the name that may be meant."""
    for message in unknown_variables(os.environ):
        _log.warning(message)


def unknown_variables(environment: Mapping[str, str]) -> Iterator[str]:
    """A message for each variable LENSBOX_... that nothing reads."""
    in_a_pod = "KUBERNETES_SERVICE_HOST" in environment
    for name in sorted(environment):
        if not name.startswith("LENSBOX_") or name in USED or _OF_DEVELOPMENT.fullmatch(name):
            continue
        if in_a_pod and _OF_KUBERNETES.fullmatch(name):
            continue
        near = get_close_matches(name, USED, 1, cutoff=0.8)
        hint = f"did you mean {near[0]}?" if near else f"those that have one: {', '.join(USED)}"
        yield f"the environment variable {name} has no effect ({hint})"
