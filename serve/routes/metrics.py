"""GET /metrics, for Prometheus."""

from fastapi import APIRouter, Request, Response
from prometheus_client.exposition import choose_encoder

from lensbox.serve.service import service_of

router = APIRouter(tags=["metrics"])


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def metrics(request: Request) -> Response:
    """The numbers of this service, in the form that the client's Accept header asks for."""
    encode, media_type = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(service_of(request).metrics.exposed()), headers={"Content-Type": media_type})
