"""What of an answer of protocol v2 can be compared between servers."""

from typing import Any

import httpx
from v2_requests import HEADER_LENGTH


def summary(response: httpx.Response) -> dict[str, Any]:
    """Status, type, encoding and JSON of an answer; how much binary follows; and of data, how many numbers.

    An empty answer has no JSON.
    """
    content = response.content  # decompressed by httpx
    length = response.headers.get(HEADER_LENGTH)
    size = len(content) if length is None else int(length)
    document = response.json() if length is None and content else None
    if length is not None:
        document = httpx.Response(200, content=content[:size]).json()
    if isinstance(document, dict):
        for output in document.get("outputs", []):
            if isinstance(output, dict) and "data" in output:
                output["data"] = len(output["data"])
    return {
        "status": response.status_code,
        "type": response.headers.get("content-type"),
        "encoding": response.headers.get("content-encoding"),
        "json": document,
        "binary": len(content) - size,
    }
