"""Run the built runner, and compare its answers."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import programs
import torch
from programs import built_runner
from torch import Tensor

from lensbox.ops import library_path

LOW = 0.05  # a score threshold at which the small detector finds something in every picture
Document = dict[str, Any]
Process = subprocess.Popen[bytes]


def run(*arguments: object, code: int | None = None, **options: Any) -> programs.Ended:
    """Run the program with the op library. options: of `programs.run`."""
    return programs.run(built_runner(), *arguments, "--ops", library_path(), code=code, **options)


def answer(*arguments: object, code: int = 0, **options: Any) -> Document:
    """Return the document on stdout, the only thing there."""
    printed = run(*arguments, code=code, **options).stdout
    assert printed.endswith("\n")
    assert printed.count("\n") == 1
    document: Document = json.loads(printed)
    return document


def refusal(code: int, *arguments: object, **options: Any) -> str:
    """Return the message of a run that exits with `code` and prints nothing on stdout."""
    done = run(*arguments, code=code, **options)
    assert done.stdout == ""
    assert done.stderr.startswith("lensbox_runner: ")
    assert "Exception raised from" not in done.stderr  # the first line of torch's C++ stack traces
    return done.stderr


@contextmanager
def started(*arguments: object, **options: Any) -> Iterator[Process]:
    """Start the program. Streams that are not given are pipes of bytes. The end of the block kills it."""
    command = [str(word) for word in (built_runner(), *arguments)]
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    environment = {**os.environ, "LENSBOX_OPS_LIBRARY": str(library_path())}
    with subprocess.Popen(command, env=environment, **{**streams, **options}) as process:
        try:
            yield process
        finally:
            process.kill()


def assert_same(answers: list[Document], expected: list[Document]) -> None:
    assert len(answers) == len(expected)
    for one, other in zip(answers, expected, strict=True):
        assert len(other["detections"]) > 0
        for key, tolerance in (("box", 0.01), ("score", 1e-4)):
            torch.testing.assert_close(numbers(one, key), numbers(other, key), rtol=1e-4, atol=tolerance)


def numbers(image: Document, key: str) -> Tensor:
    return torch.tensor([detection[key] for detection in image["detections"]])
