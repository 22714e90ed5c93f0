"""Valid and invalid requests of protocol v2, for this service and for Triton.

`python v2_requests.py URL FILE` keeps the answers of a Triton server, whose binary is in the wheel of
nvidia-pytriton. Its model `face_detector` has `max_batch_size: 0`, a Python backend that answers zeros, and
these tensors: images UINT8 [-1, 1, 256, 256]; score_threshold and iou_threshold FP32 [1], optional; boxes
FP32 [-1, 256, 4]; scores FP32 [-1, 256]; counts INT32 [-1].
"""

import gzip
import json
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import httpx

MODEL = "face_detector"
CANVAS = (1, 256, 256)
PIXELS = 256 * 256

HEADER_LENGTH = "Inference-Header-Content-Length"
INFER = f"/v2/models/{MODEL}/infer"


class Request(NamedTuple):
    method: str
    path: str
    body: bytes = b""
    headers: Mapping[str, str] = MappingProxyType({})


def images(count: int = 1, **changes: Any) -> dict[str, Any]:
    """Return the input for canvases in binary. changes: other values; None removes a key."""
    tensor = {
        "name": "images",
        "shape": [count, *CANVAS],
        "datatype": "UINT8",
        "parameters": {"binary_data_size": count * PIXELS},
        **changes,
    }
    return {key: value for key, value in tensor.items() if value is not None}


def threshold(data: Any, shape: Any = (1,), datatype: str = "FP32") -> dict[str, Any]:
    return {"name": "score_threshold", "shape": list(shape), "datatype": datatype, "data": data}


def infer(
    *inputs: Any, binary: bytes = bytes(PIXELS), length: str | None = None, path: str = INFER, **more: Any
) -> Request:
    """Return a request for inference. length: value of Inference-Header-Content-Length, if wrong."""
    header = json.dumps({"inputs": list(inputs), **more}).encode()
    return Request("POST", path, header + binary, {HEADER_LENGTH: length or str(len(header))})


def _raw(body: bytes, headers: dict[str, str] | None = None) -> Request:
    return Request("POST", INFER, body, headers or {})


def _with(request: Request, body: bytes | None = None, **headers: str) -> Request:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    body = request.body if body is None else body
    return request._replace(body=body, headers={**request.headers, **named})


_COUNTS = [{"name": "counts"}]
_GOOD = infer(images(), outputs=_COUNTS)
_PIXEL_LIST = [0] * PIXELS
_NESTED = [[[[0] * 256 for _ in range(256)]]]
_IN_JSON = json.dumps({"inputs": [images(parameters=None, data=_PIXEL_LIST)], "outputs": _COUNTS}).encode()

REQUESTS: dict[str, Request] = {
    "server": Request("GET", "/v2"),
    "live": Request("GET", "/v2/health/live"),
    "ready": Request("GET", "/v2/health/ready"),
    "model": Request("GET", f"/v2/models/{MODEL}"),
    "model of a version": Request("GET", f"/v2/models/{MODEL}/versions/1"),
    "model of an unknown version": Request("GET", f"/v2/models/{MODEL}/versions/2"),
    "unknown model": Request("GET", "/v2/models/other"),
    "model ready": Request("GET", f"/v2/models/{MODEL}/ready"),
    "version ready": Request("GET", f"/v2/models/{MODEL}/versions/1/ready"),
    "unknown version ready": Request("GET", f"/v2/models/{MODEL}/versions/3/ready"),
    "unknown model ready": Request("GET", "/v2/models/other/ready"),
    "unknown endpoint": Request("GET", "/v2/models"),
    "wrong method": Request("POST", "/v2"),
    "infer by GET": Request("GET", INFER),
    "infer with an unknown model": infer(images(), path="/v2/models/other/infer"),
    "infer with an unknown version": infer(images(), path=f"/v2/models/{MODEL}/versions/2/infer"),
    "infer with a version": infer(images(), path=f"/v2/models/{MODEL}/versions/1/infer", outputs=_COUNTS),
    "all outputs in binary": infer(images(), id="7", parameters={"binary_data_output": True}),
    "all outputs in JSON": infer(images()),
    "an empty id": infer(images(), id="", outputs=_COUNTS),
    "three images": infer(images(3), binary=bytes(3 * PIXELS), outputs=[{"name": "scores"}]),
    "outputs in another order": infer(images(), outputs=[{"name": "counts"}, {"name": "boxes"}]),
    "an output twice": infer(images(), outputs=[{"name": "counts"}, {"name": "counts"}]),
    "one output in binary": infer(
        images(), outputs=[{"name": "counts"}, {"name": "scores", "parameters": {"binary_data": True}}]
    ),
    "one output not in binary": infer(
        images(),
        parameters={"binary_data_output": True},
        outputs=[{"name": "counts", "parameters": {"binary_data": False}}, {"name": "scores"}],
    ),
    "an unknown output": infer(images(), outputs=[{"name": "keypoints"}]),
    "an unknown key": infer(images(), outputs=_COUNTS, priority="high"),
    "an unknown parameter": infer(images(), outputs=_COUNTS, parameters={"note": "x"}),
    "a threshold": infer(images(), threshold([0.5]), outputs=_COUNTS),
    "a threshold in binary": infer(
        images(),
        {"name": "score_threshold", "shape": [1], "datatype": "FP32", "parameters": {"binary_data_size": 4}},
        binary=bytes(PIXELS + 4),
        outputs=_COUNTS,
    ),
    "pixels in JSON": _raw(_IN_JSON),
    "pixels in JSON with its length": _raw(_IN_JSON, {HEADER_LENGTH: str(len(_IN_JSON))}),
    "nested pixels in JSON": _raw(
        json.dumps({"inputs": [images(parameters=None, data=_NESTED)], "outputs": _COUNTS}).encode()
    ),
    "gzip": _with(_GOOD, gzip.compress(_GOOD.body), Content_Encoding="gzip"),
    "deflate": _with(_GOOD, zlib.compress(_GOOD.body), Content_Encoding="deflate"),
    "brotli wanted": _with(infer(images()), Accept_Encoding="br"),
    "brotli": _with(_GOOD, Content_Encoding="br"),
    "not gzip": _with(_GOOD, Content_Encoding="gzip"),
    "a datatype": infer(images(datatype="FP32")),
    "channels": infer(images(shape=[1, 3, 256, 256], parameters={"binary_data_size": 3 * PIXELS})),
    "too few sides": infer(images(shape=[256, 256])),
    "a negative side": infer(images(shape=[-1, 1, 256, 256])),
    "a name": infer(images(name="pictures")),
    "too few bytes": infer(images(), binary=bytes(PIXELS - 1)),
    "too many bytes": infer(images(), binary=bytes(PIXELS + 1)),
    "too small a binary_data_size": infer(images(parameters={"binary_data_size": 100})),
    "no binary_data_size and no data": infer(images(parameters=None)),
    "an input twice": infer(images(), images(), binary=bytes(2 * PIXELS)),
    "no images": infer(threshold([0.5]), binary=b""),
    "no inputs": infer(binary=b""),
    "two thresholds": infer(images(), threshold([0.5, 0.6], shape=(2,))),
    "two thresholds in a shape of one": infer(images(), threshold([0.5, 0.6])),
    "a threshold as text": infer(images(), threshold(["high"])),
    "an id that is a number": infer(images(), id=7),
    "shared memory": infer(
        images(parameters={"shared_memory_region": "r", "shared_memory_byte_size": PIXELS}), binary=b""
    ),
    "not JSON": _raw(b'{"inputs', {HEADER_LENGTH: "8"}),
    "a list": _raw(b"[]", {HEADER_LENGTH: "2"}),
    "too large a header length": infer(images(), length="99999999"),
    "a negative header length": infer(images(), length="-1"),
    "a header length that is no number": infer(images(), length="many"),
    "nothing": _raw(b""),
}


def summary(response: httpx.Response) -> dict[str, Any]:
    """Return status, type, encoding, JSON (None if empty) and binary size of an answer.

    Data of outputs are replaced by the count of numbers.
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


def ask(client: httpx.Client, name: str) -> dict[str, Any]:
    """Send a request of `REQUESTS`; return the summary of its answer."""
    request = REQUESTS[name]
    headers = {"Accept-Encoding": "identity", **request.headers}  # without httpx's own Accept-Encoding
    return summary(client.request(request.method, request.path, content=request.body, headers=headers))


if __name__ == "__main__":
    with httpx.Client(base_url=sys.argv[1], timeout=60) as triton:
        answers = {name: ask(triton, name) for name in REQUESTS}
    server = "{name} {version}".format_map(answers["server"]["json"])
    lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(answer)}" for name, answer in answers.items())
    text = f'{{"server": {json.dumps(server)}, "answers": {{\n{lines}\n}}}}\n'
    Path(sys.argv[2]).write_text(text, encoding="utf-8")
