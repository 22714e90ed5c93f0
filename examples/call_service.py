"""Send photographs to a running `lensbox serve`, print the detections: python call_service.py photo.jpg ...

It needs httpx alone, not Lensbox. It sends several photographs at the same time, because the service computes
concurrent requests in one batch. It exits with 1 if a photograph has no answer.
"""

import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

AT_ONCE = 8


def main() -> int:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path, nargs="+", metavar="photo")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    options = parser.parse_args()
    code = 0
    with httpx.Client(base_url=options.url, timeout=60) as client, ThreadPoolExecutor(AT_ONCE) as pool:
        calls = [pool.submit(detect, client, photo) for photo in options.photos]
        for photo, call in zip(options.photos, calls, strict=True):
            if error := call.exception():
                code = 1
                print(f"{photo}: {str(error) or type(error).__name__}", file=sys.stderr)
                continue
            answer = call.result()
            print(f"{photo}, {answer['width']} x {answer['height']} pixels")
            for found in answer["detections"]:
                x1, y1, x2, y2 = found["box"]
                name = found.get("label", "score")  # a detector with classes names them
                print(f"  {name} {found['score']:.3f}, x {x1:.1f} to {x2:.1f}, y {y1:.1f} to {y2:.1f}")
    return code


def detect(client: httpx.Client, photo: Path) -> dict[str, Any]:
    """Return size and detections of a photograph. docs/clients.md also has deadlines and retries."""
    try:
        response = client.post("/v1/detect", content=photo.read_bytes())
    except httpx.ConnectError as error:
        message = f"no service at {client.base_url}: {error}; start one with `lensbox serve`"
        raise RuntimeError(message) from error
    answer: dict[str, Any] = response.json()
    if response.is_error:  # a problem document says why
        raise RuntimeError(f"{answer['code']}: {answer['detail']}")
    return answer


if __name__ == "__main__":
    sys.exit(main())
