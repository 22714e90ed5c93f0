"""The table of `lensbox` commands."""

from typing import NamedTuple


class LazyCommand(NamedTuple):
    """One command: where its click command lives, what it does, and the extra that brings its packages.

    target: "module:name" of a `click.Command`. Importing the module must not import torch: `--help` does it.
    extra: name of an optional dependency group of the package, or "" when the base installation is enough.
    """

    target: str
    summary: str
    extra: str = ""


COMMANDS: dict[str, LazyCommand] = {
    "export": LazyCommand(
        "lensbox.export.cli:export", "Write a detector's files: TorchScript, ONNX, Triton."
    ),
    "sign": LazyCommand("lensbox.export.sign_cli:sign", "Sign artifacts.", extra="sign"),
    "info": LazyCommand("lensbox.export.info_cli:info", "Say what an artifact is, or this installation."),
    "detect": LazyCommand("lensbox.client.cli:detect", "Find what is in image files.", extra="client"),
    "train": LazyCommand("lensbox.train.cli:train", "Train a face detector.", extra="train"),
    "evaluate": LazyCommand(
        "lensbox.train.cli:evaluate", "Score a detector on labelled photographs.", extra="train"
    ),
    "stress": LazyCommand("lensbox.train.cli:stress", "Find the limits of a detector.", extra="demo"),
    "bench": LazyCommand(
        "lensbox.bench.cli:bench", "Time the ops, the detector, and the way to boxes.", extra="bench"
    ),
    "serve": LazyCommand("lensbox.serve.cli:serve", "Answer detection requests over HTTP.", extra="serve"),
}
