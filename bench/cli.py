"""`lensbox bench ops`: times the ops beside their peers, and writes tables and plots."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lensbox.bench.groups import GROUPS

if TYPE_CHECKING:
    from lensbox.bench.report import Report

EXIT_GOOD = 0
EXIT_WRONG = 1  # Lensbox's own op was wrong, or failed
EXIT_UNUSABLE = 3  # as in the other commands: what was asked for is not here


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit code."""
    parser = _parser()
    options = parser.parse_args(argv)

    import torch

    from lensbox.bench.benchmark import Options, run

    has_gpu = torch.cuda.is_available()
    device = options.device or ("cuda" if has_gpu else "cpu")
    if device == "cuda" and not has_gpu:
        print("lensbox bench: --device cuda: PyTorch finds no NVIDIA GPU", file=sys.stderr)
        return EXIT_UNUSABLE
    report = run(
        Options(device, options.output, options.quick, options.only, options.threads, options.time_limit),
        lambda text: print(text, end="\n\n", flush=True),
    )
    return EXIT_WRONG if _own_defects(report) else EXIT_GOOD


def _own_defects(report: "Report") -> bool:
    from lensbox.bench.peers.registry import LENSBOX

    return any(row.peer == LENSBOX and row.note.startswith(("WRONG", "failed")) for row in report.rows)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="lensbox bench")
    commands = parser.add_subparsers(dest="command", required=True, metavar="ops")
    ops = commands.add_parser(
        "ops",
        help="time the box ops",
        description="Times the box ops beside what a user would pick instead. Each is checked first.",
    )
    ops.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda where there is a GPU")
    ops.add_argument("--output", type=Path, metavar="DIR", help="write ops.csv, results.md and plots to DIR")
    ops.add_argument(
        "--quick", action="store_true", help="fewer sizes and samples; nothing that compiles for each shape"
    )
    ops.add_argument("--only", nargs="+", choices=GROUPS, default=(), metavar="NAME", help=", ".join(GROUPS))
    ops.add_argument("--threads", type=_positive, default=1, help="CPU threads (1)")
    ops.add_argument(
        "--time-limit", type=float, metavar="SECONDS", help="begin nothing new after so many seconds"
    )
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value
