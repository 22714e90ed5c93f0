"""What FastAPI does not look at in queries."""

from collections import Counter

from fastapi import Request

from lensbox.serve.errors import ApiError, shown


async def check_each_once(request: Request) -> None:
    """Raises ApiError (422) for a parameter that came more than once: FastAPI would take the last."""
    counts = Counter(name for name, _ in request.query_params.multi_items())
    for name, count in counts.items():
        if count > 1:
            message = f"the query parameter {shown(name)} must come once, got it {count} times"
            raise ApiError(422, "invalid_parameter", message)
