"""The table of `lensbox` commands."""

from typing import NamedTuple


class Command(NamedTuple):
    """One command: where its function lives, what it does, and the extra that brings its packages.

    target: "module:function"; the function takes the arguments after the command's name (list[str]) and
        returns the exit code.
    extra: name of an optional dependency group of the package, or "" when the base installation is enough.
    """

    target: str
    summary: str
    extra: str = ""


COMMANDS: dict[str, Command] = {
    "export": Command("lensbox.export.script_model:main", "write the TorchScript artifact of a detector"),
    "train": Command("lensbox.train.commands.train:train_main", "train a face detector", extra="train"),
    "evaluate": Command(
        "lensbox.train.commands.evaluate:evaluate_main",
        "measure a detector on WIDER FACE",
        extra="train",
    ),
    "stress": Command(
        "lensbox.train.commands.stress:stress_main", "find the limits of a detector", extra="demo"
    ),
    "bench": Command("lensbox.bench.cli:main", "time the ops and the detector"),
    "serve": Command("lensbox.serve.cli:main", "answer detection requests over HTTP", extra="serve"),
}
