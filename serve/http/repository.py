"""The repository extension of protocol v2: index, load and unload models."""

from typing import Annotated, Any

from fastapi import Request
from msgspec import Meta, Struct
from msgspec.json import Decoder

from lensbox.serve.errors import ApiError
from lensbox.serve.http.service import service_of
from lensbox.serve.requests.body import TimeLimit, read_json, receive

_LARGEST = 1 << 16  # bytes of a body
_FAILED = "the load failed; the log of the service and the holder of the admin key see the reason"
_Version = Annotated[int, Meta(ge=0, lt=10**18)] | Annotated[str, Meta(pattern=r"^[0-9]{1,18}\Z")]


class _Parameters(Struct, forbid_unknown_fields=True):
    """version: the one to load. config: JSON, in which tritonclient sends a version.

    unload_dependents: sent by tritonclient, without a meaning here.
    """

    version: _Version | None = None
    config: str | None = None
    unload_dependents: bool | None = None


class _Question(Struct):
    """A body. ready: of the index."""

    parameters: _Parameters | None = None
    ready: bool | None = None


class _Specific(Struct):
    versions: tuple[int]


class _Policy(Struct):
    specific: _Specific


class _Config(Struct):
    version_policy: _Policy


_QUESTION, _CONFIG = Decoder(_Question), Decoder(_Config)


async def index(request: Request) -> Any:
    """All models and versions that lie in the folder or are served, with their states.

    Only the admin key shows why a load failed, as the reason may name paths.
    """
    asked, service = await _read(request), service_of(request)
    result = await service.models.order("index")
    if result.failure:
        raise ApiError(503, "not_ready", "the folder of models cannot be read")
    rows = [row for row in result.content if row["state"] == "READY" or not asked.ready]
    if not service.keys.is_admin(request.headers):
        rows = [{**row, "reason": _FAILED if row["reason"] else ""} for row in rows]
    return rows


async def load(request: Request) -> Any:
    """Let the newest version of a model take over, or the one in `parameters.version`.

    The answer comes once all new requests get the new version. After a failure, nothing has changed.
    """
    return await _change(request, "load")


async def unload(request: Request) -> Any:
    """End a model once its requests are answered."""
    return await _change(request, "unload")


async def _change(request: Request, action: str) -> dict[str, str]:
    service = service_of(request)
    service.keys.check_admin(request.headers)
    asked = (await _read(request)).parameters or _Parameters()
    version = None
    if action == "load" and asked.config is not None:
        config = read_json(asked.config, _CONFIG, 400, "invalid_parameter", "config")
        (version,) = config.version_policy.specific.versions
    elif action == "load" and asked.version is not None:
        version = int(asked.version)
    result = await service.models.order(action, request.path_params["name"], version)
    if result.failure:
        raise ApiError(409, f"not_{action}ed", result.failure)
    return {"model_name": result.content["name"], "model_version": result.content["version"]}


async def _read(request: Request) -> _Question:
    """Return the question in a body, which may be empty. Raise what `receive` and `read_json` raise."""
    try:
        with TimeLimit() as limit:
            content = await receive(request, _LARGEST, limit, service_of(request).settings)
    except ApiError as error:
        if error.code != "empty_body":
            raise
        return _Question()
    return read_json(content, _QUESTION, 400, "invalid_parameter")
