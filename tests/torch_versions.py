"""Run the tests with several versions of torch, each in an environment of its own, and print a table.

    python tests/torch_versions.py torch==2.11.0 "torch==2.14.1 torchvision==0.29.1" [--paths tests/ops ...]

Each requirement is installed by `make` into a clone of the last commit below `build/torches`, so that
versions share neither environment nor build folder. PYTHON names another interpreter, as for `make`.
`PIP_CONFIG_FILE=/dev/null` lifts a machine's cap on versions. Exits with 1 if a test failed or an environment
could not be made.
"""

import argparse
import platform
import re
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
_VERSIONS = """
import importlib.util as u, platform, torch
vision = __import__("torchvision").__version__ if u.find_spec("torchvision") else "none"
print(torch.__version__, "|", vision, "|", platform.python_version())
"""


def main() -> int:
    """Print a row for each requirement: versions, result, and date."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("requirements", nargs="+", help="arguments of `pip install`, in one word")
    parser.add_argument("--paths", nargs="*", default=["tests"], help="the tests to run (default: all)")
    options = parser.parse_args()
    rows = [run(requirement, options.paths) for requirement in options.requirements]
    print("| torch | torchvision | Python | system | tests | date |\n| --- | --- | --- | --- | --- | --- |")
    print("\n".join(row for row, _ in rows))
    return int(not all(passed for _, passed in rows))


def run(requirement: str, paths: list[str]) -> tuple[str, bool]:
    """Make the environment, run the tests, and return a row of the table and whether all passed."""
    clone = REPOSITORY / "build" / "torches" / re.sub(r"[^\w.]+", "-", requirement)
    if not clone.exists():
        subprocess.run(["git", "clone", "--quiet", "--shared", str(REPOSITORY), str(clone)], check=True)
    subprocess.run(["git", "pull", "--quiet", "--ff-only"], cwd=clone, check=True)
    made = subprocess.run(
        ["make", "runner", ".venv/bin/.test", f"TORCH={requirement}"], cwd=clone, check=False
    )
    if made.returncode != 0:
        return f"| {requirement} | | | | cannot be set up | {_today()} |", False
    python = ".venv/bin/python"
    versions = subprocess.run(
        [python, "-c", _VERSIONS], cwd=clone, check=True, capture_output=True, text=True
    )
    command = [*f"{python} -m pytest -q -n auto --dist loadfile -m".split(), "not exhaustive", *paths]
    tests = subprocess.run(command, cwd=clone, check=False, stdout=subprocess.PIPE, text=True)
    sys.stdout.write(tests.stdout)
    result = tests.stdout.strip().splitlines()[-1].strip("= ")
    system = f"{platform.system()} {platform.machine()}"
    return f"| {versions.stdout.strip()} | {system} | {result} | {_today()} |", tests.returncode == 0


def _today() -> str:
    return datetime.now(timezone.utc).date().isoformat()


if __name__ == "__main__":
    sys.exit(main())
