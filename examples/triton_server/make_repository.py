"""Write a model repository for Triton Inference Server; README.md in this folder is the recipe.

`make_repository.py models --onnx detector.onnx` takes a file of `lensbox export`, for the ONNX Runtime
backend.
"""

import re
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from pathlib import Path

from lensbox.common.errors import ArtifactError, LensboxError
from lensbox.common.files import atomic_write
from lensbox.runtime.file.archive import INPUTS, open_file, read_file

DATATYPES = {"uint8": "UINT8", "int32": "INT32", "int64": "INT64", "float32": "FP32"}


def main() -> int:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, help="folder of the repository")
    parser.add_argument("--onnx", type=Path, metavar="FILE", required=True, help="ONNX file to serve")
    options = parser.parse_args()
    try:
        write_onnx(options.models, options.onnx)
    except LensboxError as error:
        print(f"make_repository.py: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def write_onnx(models: Path, path: Path) -> None:
    """Write the model of an ONNX file with constant thresholds, as requests share Triton's batches."""
    import onnx

    file = open_file(read_file(path), str(path))
    metadata, canvas = file.metadata, file.metadata.canvas
    if file.kind != "onnx" or metadata.batch is not None:
        raise ArtifactError(f"{path} must be an ONNX file for batches of any size")
    model = onnx.load_from_string(file.data)
    for name, value in zip(INPUTS[1:], metadata.thresholds, strict=True):
        constant = onnx.helper.make_tensor(name, onnx.TensorProto.FLOAT, [], [value])
        model.graph.initializer.append(constant)
    del model.graph.input[1:]
    del model.metadata_props[:]  # the file is no artifact any more
    onnx.checker.check_model(model, full_check=True)
    images = entry("images", "uint8", [canvas.channels, canvas.height, canvas.width])
    outputs = [entry(name, value["dtype"], value["shape"][1:]) for name, value in metadata.output.items()]
    # `lensbox export` compares batches of up to 32.
    settings = 'backend: "onnxruntime"\nmax_batch_size: 32\ndynamic_batching { }'
    write(models, f"{metadata.name}_onnx", settings, images, outputs, "model.onnx", model.SerializeToString())


def entry(name: str, dtype: str, shape: Sequence[int | str]) -> str:
    """Return an entry of `input` or `output`. shape: letters stand for sizes that vary."""
    dims = [size if isinstance(size, int) else -1 for size in shape]
    # Triton needs a dimension beside the batch.
    sizes = f"dims: {dims}" if dims else "dims: [ 1 ], reshape { shape: [ ] }"
    return f'{{ name: "{name}", data_type: TYPE_{DATATYPES[dtype]}, {sizes} }}'


def write(
    models: Path, name: str, settings: str, images: str, outputs: list[str], file: str, content: bytes
) -> None:
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", name)  # for folders and URLs
    config = f'name: "{name}"\n{settings}\ninput [ {images} ]\noutput [\n  ' + ",\n  ".join(outputs) + "\n]\n"
    atomic_write(models / name / "1" / file, content)
    # Last: for Triton, a folder with a configuration is a model.
    atomic_write(models / name / "config.pbtxt", config.encode())
    print(models / name)


if __name__ == "__main__":
    sys.exit(main())
