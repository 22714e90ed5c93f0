"""The repository extension of protocol v2: index, load and unload models."""

import json
from typing import Any

from fastapi import Request
from msgspec import Struct
from msgspec.json import Decoder

from lensbox.serve.errors import ApiError, shown
from lensbox.serve.http.service import service_of
from lensbox.serve.requests.body import read_json, receive

_LARGEST = 1 << 16  # bytes of a body


class _Question(Struct):
    """A body. parameters: version; or config, in which tritonclient sends a version. ready: of the index."""

    parameters: dict[str, Any] | None = None
    ready: bool | None = None


_QUESTION = Decoder(_Question)


async def index(request: Request) -> Any:
    """All models and versions that lie in the folder or are served, with their states."""
    asked = await _read(request)
    result = await service_of(request).models.order("index")
    if result.failure:
        raise ApiError(503, "not_ready", result.failure)
    return [row for row in result.content if row["state"] == "READY" or not asked.ready]


async def load(request: Request) -> Any:
    """Let the newest version of a model take over, or the one in `parameters.version`.

    The answer comes once all new requests get the new version. After a failure, nothing has changed.
    """
    return await _change(request, "load")


async def unload(request: Request) -> Any:
    """End a model once its requests are answered."""
    return await _change(request, "unload")


async def _change(request: Request, action: str) -> dict[str, str]:
    request.app.state.keys.check_admin(request.headers)
    asked = await _read(request)
    version = _version(asked.parameters or {}) if action == "load" else None
    result = await service_of(request).models.order(action, request.path_params["name"], version)
    if result.failure:
        raise ApiError(409, f"not_{action}ed", result.failure)
    return {"model_name": result.content["name"], "model_version": result.content["version"]}


async def _read(request: Request) -> _Question:
    """Return the question in a body, which may be empty. Raises what `receive` and `read_json` raise."""
    try:
        content, _ = await receive(request, _LARGEST, service_of(request).settings)
    except ApiError as error:
        if error.code != "empty_body":
            raise
        return _Question()
    return read_json(content, _QUESTION, 400, "invalid_parameter")


def _version(parameters: dict[str, Any]) -> int | None:
    """Return the version in `parameters.version`, or in the policy of tritonclient's `config`."""
    version, config = parameters.get("version"), parameters.get("config")
    others = sorted(parameters.keys() - {"version", "config"})
    if others:  # tritonclient's files
        raise _invalid(f"parameters must be version or config, got {shown(others)}")
    if config is not None:
        try:
            (version,) = json.loads(config)["version_policy"]["specific"]["versions"]
        except (ValueError, TypeError, LookupError, RecursionError):
            rule = '{"version_policy": {"specific": {"versions": [N]}}}'
            raise _invalid(f"config must be {rule}, got {shown(config)}") from None
    if version is None:
        return None
    text = str(version)
    if isinstance(version, bool) or not (text.isascii() and text.isdigit() and len(text) < 19):
        raise _invalid(f"version must be a number, got {shown(version)}")
    return int(text)


def _invalid(message: str) -> ApiError:
    return ApiError(400, "invalid_parameter", message)
