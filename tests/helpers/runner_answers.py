"""Run the built runner, and compare its answers."""

import json
from typing import Any

import programs
import torch
from built_runner import built_runner
from torch import Tensor

from lensbox.ops import library_path

LOW = 0.05  # a score threshold at which the small detector finds something in every picture
Document = dict[str, Any]


def run(*arguments: object, code: int | None = None) -> programs.Ended:
    return programs.run(built_runner(), *arguments, "--ops", library_path(), code=code)


def answer(*arguments: object) -> Document:
    document: Document = json.loads(run(*arguments, code=0).stdout)
    return document


def assert_same(answers: list[Document], expected: list[Document]) -> None:
    assert len(answers) == len(expected)
    for one, other in zip(answers, expected, strict=True):
        assert len(other["detections"]) > 0
        for key, tolerance in (("box", 0.01), ("score", 1e-4)):
            torch.testing.assert_close(numbers(one, key), numbers(other, key), rtol=1e-4, atol=tolerance)


def numbers(image: Document, key: str) -> Tensor:
    return torch.tensor([detection[key] for detection in image["detections"]])
