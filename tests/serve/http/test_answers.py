"""Answers to requests for paths and methods that no endpoint has. `requests/test_body.py` has bad bodies."""

import httpx
from services import problem_of


def test_rejects_unknown_paths_and_large_json_of_v2(client: httpx.Client) -> None:
    for method, path, status in (
        ("GET", "/v2/models", 404),
        ("GET", "/v2/models/other", 404),
        ("GET", "/v2/models/face_detector/versions/2", 404),
        ("POST", "/v2/models/other/infer", 404),
        ("POST", "/v2", 405),
        ("GET", "/v2/models/face_detector/infer", 405),
    ):
        response = client.request(method, path)
        assert (response.status_code, list(response.json())) == (status, ["error"]), path
    response = client.post("/v2/models/face_detector/infer", content=bytes((1 << 20) + 1))
    assert (response.status_code, response.json()["error"][:30]) == (413, "JSON must have at most 1048576")


def test_unknown_paths_and_methods_are_problems(client: httpx.Client, png: bytes) -> None:
    message = "there is no endpoint GET '/v1/nothing'"
    assert problem_of(client.get("/v1/nothing")) == (404, "not_found", message)
    response = client.get("/v1/detect")
    message = "the endpoint takes POST, got GET '/v1/detect'"
    assert problem_of(response) == (405, "method_not_allowed", message)
    assert response.headers["allow"] == "POST"
    response = client.post("/v1/detect/", content=png, headers={"Host": "evil.example"})
    assert (response.status_code, "location" in response.headers) == (404, False)  # no redirect
