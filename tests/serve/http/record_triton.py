"""Keep what a Triton server answers to the requests of `tests/v2_requests.py`.

usage: python record_triton.py URL FILE, in the folder `tests` of the repository.

The server has to serve a model `face_detector` with `max_batch_size: 0`, a Python backend that answers zeros,
and these tensors:

    images            UINT8  [-1, 1, 256, 256]
    score_threshold   FP32   [1], optional
    iou_threshold     FP32   [1], optional
    boxes             FP32   [-1, 256, 4]
    scores            FP32   [-1, 256]
    counts            INT32  [-1]

Its binary, with the Python backend, is in the wheel of nvidia-pytriton.
"""

import json
import sys
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).parents[2]))

from v2_requests import REQUESTS, summary


def main(url: str, file: str) -> None:
    """Ask the server at `url` everything and write its answers."""
    answers: dict[str, Any] = {}
    with httpx.Client(base_url=url, timeout=60) as client:
        for name, request in REQUESTS.items():
            # Without httpx's own Accept-Encoding.
            headers = {"Accept-Encoding": "identity", **request.headers}
            response = client.request(request.method, request.path, content=request.body, headers=headers)
            answers[name] = summary(response)
    server = answers["server"]["json"]
    lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(answer)}" for name, answer in answers.items())
    name = json.dumps(f"{server['name']} {server['version']}")
    Path(file).write_text(f'{{"server": {name}, "answers": {{\n{lines}\n}}}}\n', encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
