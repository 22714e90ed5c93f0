"""Export the face detector from Python, as TorchScript and as ONNX, and run both files on a photograph.

`python export.py photo.jpg [--weights runs/mine/weights.safetensors]` writes detector.pt and detector.onnx.
`lensbox export` does the same, with more options. To export your own detector (docs/your_detector.md),
use it in place of `load_detector`.
"""

import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path

from lensbox.common.errors import ExitCode, LensboxError
from lensbox.export import save_artifact
from lensbox.model import load_detector, recommended_threshold
from lensbox.runtime import load_artifact


def main() -> int:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("photo", type=Path)
    parser.add_argument(
        "--weights", type=Path, help="weights written by `lensbox train`; default: the shipped weights"
    )
    parser.add_argument("--output", type=Path, default=Path(), metavar="FOLDER")
    options = parser.parse_args()
    try:
        export(options.photo, options.weights, options.output)
    except (LensboxError, OSError) as error:
        print(f"export.py: {error}", file=sys.stderr)
        return error.exit_code if isinstance(error, LensboxError) else ExitCode.BAD_INPUT
    return 0


def export(photo: Path, weights: Path | None, output: Path) -> None:
    detector = load_detector(weights)
    threshold = recommended_threshold(weights)
    file = photo.read_bytes()  # before the export, which takes a while
    # `save_artifact` loads each file back and compares its detections before it writes the file.
    save_artifact(detector, output / "detector.pt", score_threshold=threshold)
    save_artifact(detector, output / "detector.onnx", score_threshold=threshold, kind="onnx")
    for path in (output / "detector.pt", output / "detector.onnx"):
        artifact = load_artifact(path, device="cpu")
        found = artifact.detect_image(artifact.read_photo(file))
        print(f"{path}, {artifact.metadata.name}:")
        for score, (x1, y1, x2, y2) in zip(found.scores.tolist(), found.boxes.tolist(), strict=True):
            print(f"  score {score:.3f}, x {x1:.1f} to {x2:.1f}, y {y1:.1f} to {y2:.1f}")


if __name__ == "__main__":
    sys.exit(main())
