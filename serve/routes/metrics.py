"""GET /metrics, for Prometheus."""

from fastapi import APIRouter, Request, Response
from prometheus_client.exposition import choose_encoder

from lensbox.serve.service import service_of

router = APIRouter(tags=["metrics"])


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
def metrics(request: Request) -> Response:
    """Return the metrics of this service in the format of the Accept header. In a thread: it reads files."""
    encode, media_type = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(service_of(request).metrics.exposed()), headers={"Content-Type": media_type})
