"""Send photographs to a running `lensbox serve`, print the detections: python call_service.py photo.jpg ...

It needs httpx alone, not Lensbox. It sends several photographs at the same time, because the service computes
concurrent requests in one batch. It exits with 1 if a photograph has no answer.
"""

import asyncio
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path
from typing import Any

import httpx

AT_ONCE = 8


async def main() -> int:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path, nargs="+", metavar="photo")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    options = parser.parse_args()
    # Not by httpx's limit of connections: waiting for a connection counts towards the timeout.
    places = asyncio.Semaphore(AT_ONCE)
    async with httpx.AsyncClient(base_url=options.url, timeout=60) as client:
        calls = (detect(client, photo, places) for photo in options.photos)
        answers = await asyncio.gather(*calls, return_exceptions=True)
    for photo, answer in zip(options.photos, answers, strict=True):
        if isinstance(answer, BaseException):
            print(f"{photo}: {str(answer) or type(answer).__name__}", file=sys.stderr)
            continue
        print(f"{photo}, {answer['width']} x {answer['height']} pixels")
        for found in answer["detections"]:
            x1, y1, x2, y2 = found["box"]
            name = found.get("label", "score")  # a detector with classes names them
            print(f"  {name} {found['score']:.3f}, x {x1:.1f} to {x2:.1f}, y {y1:.1f} to {y2:.1f}")
    return int(any(isinstance(answer, BaseException) for answer in answers))


async def detect(client: httpx.AsyncClient, photo: Path, places: asyncio.Semaphore) -> dict[str, Any]:
    """Return size and detections of a photograph. docs/clients.md also has deadlines and retries."""
    try:
        async with places:
            response = await client.post("/v1/detect", content=photo.read_bytes())
    except httpx.ConnectError as error:
        message = f"no service at {client.base_url}: {error}; start one with `lensbox serve`"
        raise RuntimeError(message) from error
    answer: dict[str, Any] = response.json()
    if response.is_error:  # a problem document says why
        raise RuntimeError(f"{answer['code']}: {answer['detail']}")
    return answer


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
