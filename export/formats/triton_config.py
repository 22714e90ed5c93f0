"""The texts of a Triton model repository: `config.pbtxt` of each model, and README.md for the operator."""

from collections.abc import Mapping, Sequence

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2 as triton

from lensbox.artifact.archive import INPUTS
from lensbox.artifact.metadata import ArtifactMetadata
from lensbox.common.errors import ArtifactError
from lensbox.export.verify.reference import BATCHES

THRESHOLDS = INPUTS[1:]
LARGEST_BATCH = max(BATCHES)  # the largest verified batch

_WARM_SIZES = (1, 2, 4, 8, 16, LARGEST_BATCH)
_WARM_CALLS = 2  # the first call makes plans and loads kernels
_QUEUE_SIZE = 256  # requests
_QUEUE_TIMEOUT = 30_000_000  # microseconds; a client may set a shorter timeout
_DATATYPES = {
    "bool": triton.TYPE_BOOL,
    "uint8": triton.TYPE_UINT8,
    "int32": triton.TYPE_INT32,
    "int64": triton.TYPE_INT64,
    "float16": triton.TYPE_FP16,
    "float32": triton.TYPE_FP32,
    "float64": triton.TYPE_FP64,
}


_BACKENDS = {
    "pytorch": (
        "PyTorch",
        "the TorchScript artifact, `1/model.pt`, which `lensbox info` and every runtime of Lensbox also load",
        "the [op library](#the-op-library)",
    ),
    "onnx": ("ONNX Runtime", "the detector in standard operators of ONNX", "nothing"),
    "python": (
        "Python, on CPUs",
        "the ONNX artifact, `1/detector.onnx`; requests may set thresholds",
        "numpy and onnxruntime in the Python of the backend",
    ),
}

_TEXT = """\
# {name}, for Triton Inference Server

Written by Lensbox {lensbox_version} with torch {torch_version}; weights {weights}.

| model | backend | content | requires |
| --- | --- | --- | --- |
{models}

Each model was compared with the detector on a CPU, in batches of up to {batch}: the PyTorch model with torch,
the ONNX models with onnxruntime. The models were not run in Triton's own backends: test a new server with a
picture whose detections you know.

## Start

Load only models whose backend the server has. Without `--model-control-mode`, the server loads all models and
exits if one fails.

```sh
tritonserver --model-repository=models --model-control-mode=explicit --load-model={first}
```
{op_library}
## Tensors

| tensor | datatype, shape of an image | |
| --- | --- | --- |
| input `images` | UINT8 {canvas} | {colors}: a canvas |
{thresholds}{outputs}

The shapes have a batch dimension in front, at most {batch}. Triton batches waiting requests.

The client fits a photograph to the canvas: upright, scaled to fit, centred, padded with the gray level
{fill}. In Python, `artifact.preprocess` of the file does the same, and `artifact.restore` converts boxes to
pixels of the photograph.
{classes}
## Thresholds

The models return detections with scores above {score} and overlaps (IoU) of at most
{overlap}{own_thresholds}.
Detections are sorted by score, so a client can apply a higher score threshold. For other thresholds, export
the repository again with `--score-threshold` and `--iou-threshold`.

## Settings

`config.pbtxt` of each model sets one instance (`instance_group`){kinds}, dynamic batching
(`dynamic_batching`) with a queue of at most 256 requests and 30 s, and warm-up calls (`model_warmup`). An
ONNX model uses all cores for one instance: set the parameter `intra_op_thread_count` (`threads` for the
Python backend) if several instances share a machine.
"""

_OP_LIBRARY = """
### The op library

The PyTorch backend has only torch's operators. Load the detector's operators first, from their library:

```sh
LD_LIBRARY_PATH=/opt/tritonserver/backends/pytorch LD_PRELOAD=/path/to/liblensbox_ops.so \\
  tritonserver --model-repository=models --model-control-mode=explicit --load-model={first}
```

Without the library, the model fails to load with `Unknown builtin op`. The operators are {ops}.

The library must be built for the libtorch in the backend's folder, which is NVIDIA's build of torch, not the
build on PyPI. Build the library from Lensbox's sources with CMake, in NVIDIA's PyTorch container of the same
month. That torch should be {torch_version} or later: older versions may not read `model.pt`.

The backend leaves TF32 on, torch's default on GPUs. Lensbox computes in full float32: set
`NVIDIA_TF32_OVERRIDE=0` in the server's environment to turn TF32 off.
"""


def config_text(config: triton.ModelConfig) -> bytes:
    """Return the content of `config.pbtxt`. Raises ArtifactError if the text does not parse back."""
    text: str = text_format.MessageToString(config)
    read = text_format.Parse(text, triton.ModelConfig())
    if read != config:
        raise ArtifactError(f"the config.pbtxt of {config.name} parses to another configuration")
    return text.encode()


def model_config(
    name: str,
    backend: str,
    metadata: ArtifactMetadata,
    *,
    kind: int = triton.ModelInstanceGroup.KIND_AUTO,
    optional: Sequence[str] = (),
    parameters: Mapping[str, str] | None = None,
) -> triton.ModelConfig:
    """Return the configuration of a model of `detect`.

    kind: device kind of the instances. optional: optional inputs, float32 [1]. parameters: parameters of the
    backend or the model.
    """
    canvas = metadata.canvas
    shape = [canvas.channels, canvas.height, canvas.width]
    config = triton.ModelConfig(name=name, backend=backend, max_batch_size=LARGEST_BATCH)
    config.input.add(name="images", data_type=triton.TYPE_UINT8, dims=shape)
    for threshold in optional:
        config.input.add(name=threshold, data_type=triton.TYPE_FP32, dims=[1], optional=True)
    for output in metadata.outputs:
        _add_output(config, output, metadata)
    config.instance_group.add(count=1, kind=kind)
    # Requests that arrive while an instance is busy form its next batch; no request waits for a full batch.
    queue = config.dynamic_batching.default_queue_policy
    queue.max_queue_size = _QUEUE_SIZE
    queue.default_timeout_microseconds = _QUEUE_TIMEOUT
    queue.allow_timeout_override = True
    for size in _WARM_SIZES:
        warmup = config.model_warmup.add(name=f"batch of {size}", batch_size=size, count=_WARM_CALLS)
        warmup.inputs["images"].CopyFrom(
            triton.ModelWarmup.Input(data_type=triton.TYPE_UINT8, dims=shape, zero_data=True)
        )
    for key, value in (parameters or {}).items():
        config.parameters[key].string_value = value
    return config


def _add_output(config: triton.ModelConfig, name: str, metadata: ArtifactMetadata) -> None:
    described = metadata.output[name]
    # Without the batch; a letter stands for a variable size.
    dims = [size if isinstance(size, int) else -1 for size in described["shape"][1:]]
    output = config.output.add(name=name, data_type=_DATATYPES[described["dtype"]], dims=dims or [1])
    if not dims:  # Triton requires a dimension besides the batch
        output.reshape.SetInParent()


def notes(metadata: ArtifactMetadata, models: Sequence[str]) -> str:
    """Return the content of README.md. models: names, `NAME_BACKEND`, the PyTorch backend's first."""
    canvas = metadata.canvas
    per_request = [model for model in models if model.endswith("_python")]
    classes = ", ".join(f"{label} {name}" for label, name in enumerate(metadata.classes))
    return _TEXT.format(
        name=metadata.name,
        lensbox_version=metadata.lensbox_version,
        torch_version=metadata.torch_version,
        weights=metadata.weights_sha256[:12],
        models="\n".join(_model_row(model) for model in models),
        batch=LARGEST_BATCH,
        first=models[0],
        op_library=_op_library(metadata, models[0]),
        canvas=[canvas.channels, canvas.height, canvas.width],
        colors="RGB" if canvas.channels == 3 else "gray levels",
        fill=canvas.fill,
        thresholds="".join(
            f"| inputs `score_threshold`, `iou_threshold` of `{model}` | FP32 [1] | may be left out; "
            "the same for all images of a request |\n"
            for model in per_request
        ),
        outputs="\n".join(_output_row(name, metadata) for name in metadata.outputs),
        classes=f"\n`labels` are: {classes}.\n" if classes else "",
        score=metadata.score_threshold,
        overlap=metadata.iou_threshold,
        own_thresholds="".join(f"; requests to `{model}` may set others" for model in per_request),
        kinds=", on a GPU where there is one" + ", the Python one on a CPU" * bool(per_request),
    )


def _model_row(model: str) -> str:
    backend, what, needs = _BACKENDS[model.rsplit("_", 1)[1]]
    return f"| `{model}` | {backend} | {what} | {needs} |"


def _output_row(name: str, metadata: ArtifactMetadata) -> str:
    described = metadata.output[name]
    shape = "[" + ", ".join(map(str, described["shape"][1:] or [1])) + "]"
    meaning = {"counts": "how many of the slots hold a detection"}.get(name, described.get("unit", ""))
    return f"| output `{name}` | {described['dtype'].upper().replace('FLOAT', 'FP')} {shape} | {meaning} |"


def _op_library(metadata: ArtifactMetadata, model: str) -> str:
    if not metadata.ops:
        return ""
    ops = ", ".join(f"`{schema.split('(')[0]}`" for schema in metadata.ops)
    return _OP_LIBRARY.format(first=model, ops=ops, torch_version=metadata.torch_version)
