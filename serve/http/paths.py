"""The table of paths, for routes, API keys, admission, metrics, logs and the OpenAPI document."""

from typing import Any

from lensbox.common.detections import ImageDetections
from lensbox.serve.http import detect, info, loss, repository, v2
from lensbox.serve.http.answers import Health, InferAnswer, LossAnswer, ModelAnswer, ModelMetadata
from lensbox.serve.http.service import Endpoint

_POSTED = (400, 408, 413, 415, 422, 503, 504)


def _probe(path: str, answer: Any, tag: str, answers: Any = None) -> Endpoint:
    return Endpoint("GET", path, answer, tag, answers, (503,), is_open=True, is_probe=True)


def _of_admin(action: str, answer: Any) -> Endpoint:
    """Return the endpoint of a change of models. The answer itself checks the admin key."""
    path = f"/v2/repository/models/{{name}}/{action}"
    return Endpoint("POST", path, answer, "v2", errors=(400, 401, 403, 409))


def _of_model(
    method: str,
    path: str,
    answer: Any,
    answers: Any = None,
    errors: tuple[int, ...] = (400, 404, 503),
    **more: Any,
) -> tuple[Endpoint, Endpoint]:
    """Return the endpoints of a path below a model of protocol v2, and below its version."""
    model = "/v2/models/{name}"
    return (
        Endpoint(method, f"{model}{path}", answer, "v2", answers, errors, **more),
        Endpoint(method, f"{model}/versions/{{version}}{path}", answer, **more),
    )


# The first paths are found first.
ENDPOINTS = (
    Endpoint(
        *("POST", "/v1/detect", detect.detect, "detect", ImageDetections, _POSTED),
        query=detect.DetectParameters,
        is_admitted=True,
    ),
    *_of_model("POST", "/infer", v2.infer, InferAnswer, (*_POSTED, 404), is_admitted=True),
    Endpoint(*("POST", "/v1/loss", loss.loss, "loss", LossAnswer, _POSTED), is_admitted=True),
    Endpoint("GET", "/v1/model", info.model, "model", ModelAnswer, (503,)),
    _probe("/livez", info.livez, "health", Health),
    _probe("/healthz", info.livez, ""),
    _probe("/readyz", info.readyz, "health", Health),
    Endpoint("GET", "/metrics", info.metrics, "metrics", is_probe=True),
    Endpoint("GET", "/v2", info.server_metadata, "v2"),
    _probe("/v2/health/live", info.server_live, "v2"),
    _probe("/v2/health/ready", info.server_ready, "v2"),
    Endpoint("GET", "/v1/models", info.models, "model", errors=(503,)),
    Endpoint("GET", "/v1/models/{name}", info.model, "", ModelAnswer),
    Endpoint("POST", "/v1/models/{name}/detect", detect.detect, is_admitted=True),
    Endpoint("POST", "/v1/models/{name}/loss", loss.loss, is_admitted=True),
    Endpoint("POST", "/v2/repository/index", repository.index, "v2", errors=(400, 503)),
    _of_admin("load", repository.load),
    _of_admin("unload", repository.unload),
    *_of_model("GET", "/ready", info.model_ready),
    *_of_model("GET", "", info.model_metadata, ModelMetadata),
)
PAGES = (
    Endpoint("GET", "/", info.page, is_open=True),
    Endpoint("GET", "/page/{name}", info.page_file, is_open=True),
)
