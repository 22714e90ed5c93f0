"""Recorded requests to a Triton server get answers of the same status and form."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from v2_requests import REQUESTS, ask

_RECORDED = json.loads((Path(__file__).parent / "triton_2_51.json").read_text(encoding="utf-8"))
_TRITON: dict[str, Any] = _RECORDED["answers"]

# Statuses that differ from Triton's on purpose.
_OTHER_STATUS = {
    # This service answers 400 to every mistake of a client.
    "a negative side": 400,
    "no images": 400,
    "two thresholds in a shape of one": 400,
    "a threshold as text": 400,
    "an id that is a number": 400,
    "not JSON": 400,
    "a list": 400,
    "shared memory": 400,
    # The statuses of HTTP and of /v1.
    "brotli": 415,
    "unknown version ready": 404,
    "unknown model ready": 404,
}
# By the extension's text, `binary_data_output` applies to outputs without `binary_data`.
_OTHER_FORM = {"one output not in binary"}


def test_the_recording_has_every_request() -> None:
    assert _RECORDED["server"] == "triton 2.51.0"
    assert _TRITON.keys() == REQUESTS.keys()
    for name, status in _OTHER_STATUS.items():
        assert _TRITON[name]["status"] != status


@pytest.mark.parametrize("name", REQUESTS)
def test_status_and_form_equal_tritons(name: str, client: httpx.Client) -> None:
    answer, triton = ask(client, name), dict(_TRITON[name])
    assert answer["status"] == _OTHER_STATUS.get(name, triton["status"]), answer["json"]
    assert ask(client, "live")["status"] == 200  # on the same connection
    if answer["status"] >= 400:
        assert answer["type"] == "application/json"
        assert list(answer["json"]) == ["error"]
        assert isinstance(answer["json"]["error"], str)
    elif triton["json"] is None:  # health, of which KServe's clients read a JSON object
        assert all(value is True for key, value in answer["json"].items() if key != "name")
    elif name == "server":
        assert answer["json"].keys() == triton["json"].keys()
        assert set(answer["json"]["extensions"]) <= set(triton["json"]["extensions"])
    elif name in _OTHER_FORM:
        assert (answer["binary"], triton["binary"]) == (1024, 0)
    else:
        if "platform" in triton["json"]:
            triton["json"] = {**triton["json"], "platform": answer["json"]["platform"]}
        assert answer == triton
