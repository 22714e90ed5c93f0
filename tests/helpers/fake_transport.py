"""A client whose requests go to a function in the test."""

from collections.abc import Callable
from typing import Any

import httpx

from lensbox.client import Client

NOTHING = {"width": 4, "height": 3, "detections": []}
Answer = Callable[[httpx.Request], httpx.Response]


def faked(answer: Answer, **options: Any) -> Client:
    return Client("http://service/below/", transport=httpx.MockTransport(answer), **options)


def in_turn(*answers: httpx.Response | Exception) -> tuple[Answer, list[httpx.Request]]:
    """Return a function that gives each answer once, and the list of its requests."""
    remaining, requests = iter(answers), []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        given = next(remaining)
        if isinstance(given, Exception):
            raise given
        return given

    return answer, requests


def problem(status: int, code: str, detail: str = "it is so", **headers: str) -> httpx.Response:
    return httpx.Response(status, json={"code": code, "detail": detail, "status": status}, headers=headers)
