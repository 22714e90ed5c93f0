"""What the interface's description says of keys and rates."""

from typing import Any

from lensbox.serve.security.access import Access
from lensbox.serve.security.guard import is_open

_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}
_CODES = {"401": "No known key", "429": "Too many requests"}


def add_access(schema: dict[str, Any], access: Access) -> None:
    """Adds to an OpenAPI document which operations need a key, and what they answer if they refuse."""
    codes = [*(["401"] if access.key_file else []), *(["429"] if access.buckets else [])]
    if access.key_file:
        schema.setdefault("components", {})["securitySchemes"] = _SCHEMES
    for path, operations in schema["paths"].items():
        if is_open(path):
            continue
        kind = "application/json" if f"{path}/".startswith("/v2/") else "application/problem+json"
        for operation in operations.values():
            for code in codes:
                operation["responses"][code] = {"description": _CODES[code], "content": {kind: {}}}
            if access.key_file:
                operation["security"] = [{name: []} for name in _SCHEMES]
