"""GET /healthz and GET /readyz, for whatever starts, watches and balances the process."""

from fastapi import APIRouter, Request

from lensbox.serve.schemas import Health, problems
from lensbox.serve.service import service_of

router = APIRouter(tags=["health"])


@router.get("/healthz", response_model_exclude_defaults=True, responses=problems(503))
async def healthz(request: Request) -> Health:
    """200 while the process answers, and its model has not been given up. Failing this check means: restart
    the process."""
    service_of(request).check_alive()
    return Health(status="alive", missing=[])


@router.get("/readyz", response_model_exclude_defaults=True, responses=problems(503))
async def readyz(request: Request) -> Health:
    """200 once the model is loaded, has passed its self-test and is warm, and every process that accepts
    requests can use it; 503: send requests elsewhere."""
    service = service_of(request)
    service.check_available()
    return Health(status="ready", missing=service.instance.missing)
