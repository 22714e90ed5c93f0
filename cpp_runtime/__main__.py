"""Print the folder of the C++ runtime's sources; a wheel has them, so that it can be built (docs/cpp.md)."""

import argparse
from pathlib import Path


def source_dir() -> Path:
    """The folder for `cmake -S`: the project of the C++ library and of lensbox_runner."""
    return Path(__file__).resolve().parent


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m lensbox.cpp_runtime", description=__doc__)
    parser.add_argument(
        "--source-dir", action="store_true", required=True, help="print the folder for cmake -S"
    )
    parser.parse_args()
    print(source_dir())
