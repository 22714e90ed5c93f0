"""Write a model repository for Triton Inference Server; README.md in this folder is the recipe.

`make_repository.py models --onnx detector.onnx` takes a file of `lensbox export`, for the ONNX Runtime
backend. `make_repository.py models --aoti cuda` compiles a detector for the PyTorch backend and this machine.
"""

import re
import sys
import tempfile
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lensbox.common.errors import ArtifactError, LensboxError
from lensbox.common.files import atomic_write
from lensbox.export import ExportOptions
from lensbox.model import load_detector, recommended_threshold
from lensbox.runtime.file.archive import INPUTS, open_file, read_file

DATATYPES = {"uint8": "UINT8", "int32": "INT32", "int64": "INT64", "float32": "FP32"}


def main() -> int:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, help="folder of the repository")
    parser.add_argument("--onnx", type=Path, metavar="FILE", help="ONNX file to serve")
    parser.add_argument("--aoti", choices=["cpu", "cuda"], help="device to compile for")
    parser.add_argument("--model", metavar="MODULE:FUNCTION", help="detector to compile; default: of faces")
    parser.add_argument("--weights", type=Path, metavar="FILE", help="weights of the detector to compile")
    parser.add_argument("--dtype", choices=["float32", "float16", "bfloat16"], default="float32")
    options = parser.parse_args()
    try:
        if options.onnx is not None:
            write_onnx(options.models, options.onnx)
        if options.aoti is not None:
            write_package(options.models, options.aoti, options.dtype, options.model, options.weights)
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


def write_package(models: Path, device: str, dtype: str, model: str | None, weights: Path | None) -> None:
    """Compile a detector with its thresholds as constants: Triton copies all inputs of a model to its GPU."""
    from lensbox.export.formats.aoti import compile_detect, package
    from lensbox.export.model_loader import load_model
    from lensbox.export.pipeline import describe_outputs
    from lensbox.export.plan import ExportPlan
    from lensbox.export.verify.reference import tolerance_of
    from lensbox.export.verify.verifier import Comparer

    detector = load_detector(weights) if model is None else load_model(model, weights, {})
    threshold = recommended_threshold(weights) if model is None else None
    plan = ExportPlan(detector, ExportOptions(threshold, dtype=dtype, device=device))
    files, _ = compile_detect(plan, thresholds=None)
    content = package("model", files, {})
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "model.pt2").write_bytes(content)
        run: Any = torch._inductor.aoti_load_package(f"{folder}/model.pt2")

        def detect(canvases: Tensor, *thresholds: float) -> Mapping[str, Tensor]:
            with torch.inference_mode():
                found = [value.cpu() for value in run(canvases.to(device))]
            return dict(zip(plan.outputs, found, strict=True))

        tolerance, where = tolerance_of(dtype, device, plan.options.tolerance), f"the model for {device}"
        comparer = Comparer(plan.reference, tolerance, where)
        comparer.compare_detect(detect, plan.thresholds, plan.reference.batches)
    # Triton does not batch requests for these models: the batch is a dimension like the others.
    specification, described = plan.detector.specification, describe_outputs(plan.detector)
    images = entry("INPUT__0", "uint8", ["B", *specification.canvas_shape])
    outputs = [
        entry(f"OUTPUT__{index}", described[name]["dtype"], described[name]["shape"])
        for index, name in enumerate(plan.outputs)
    ]
    kind = "KIND_GPU" if device == "cuda" else "KIND_CPU"
    settings = f'backend: "pytorch"\nplatform: "torch_aoti"\ninstance_group [ {{ kind: {kind} }} ]'
    write(models, f"{specification.name}_aoti", settings, images, outputs, "model.pt2", content)


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
