"""GET /healthz and GET /readyz, for whatever starts, watches and balances the process."""

from fastapi import APIRouter, Request

from lensbox.serve.engine.errors import NotReadyError
from lensbox.serve.schemas import Health, problems
from lensbox.serve.service import service_of

router = APIRouter(tags=["health"])


@router.get("/healthz", response_model_exclude_defaults=True)
async def healthz() -> Health:
    """200 while the process answers at all. Failing this check means: restart the process."""
    return Health(status="alive", missing=[])


@router.get("/readyz", response_model_exclude_defaults=True, responses=problems(503))
async def readyz(request: Request) -> Health:
    """200 once the model is loaded, has passed its self-test and is warm; 503: send requests elsewhere."""
    service = service_of(request)
    if service.ending:
        raise NotReadyError("the service is shutting down")
    service.check_ready()
    return Health(status="ready", missing=service.instance.missing)
