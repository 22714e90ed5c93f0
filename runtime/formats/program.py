"""Exported programs: graphs of torch.export, run operator by operator."""

import io
import json
import zipfile
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from lensbox.common.errors import ArtifactError
from lensbox.ops.boxes import with_gradient
from lensbox.runtime.detect.artifact import Artifact
from lensbox.runtime.device import choose_device
from lensbox.runtime.file.archive import LOSS, MODEL, ArtifactFile
from lensbox.runtime.formats.detect_only import DetectOnlyMethods, Loss, detect_of_graph
from lensbox.runtime.formats.program_function import Graph
from lensbox.runtime.formats.program_graph import read_graph
from lensbox.runtime.formats.program_schema import Json, dtype_of, integer, require
from lensbox.runtime.op_library import require_ops

_SCHEMA_MAJOR = 8
_INPUTS = {MODEL: 3, LOSS: 2}  # canvases and thresholds; predictions and targets


def load(file: ArtifactFile, device_name: str) -> Artifact:
    """Load a program on any device. The file is data: nothing of it is unpickled, evaluated or compiled.

    Raise ArtifactError if an operator is missing, has another schema or is not for programs, or if the file
    is damaged; DeviceError.
    """
    device, metadata = choose_device(device_name), file.metadata
    require_ops(file.name, metadata.ops)
    try:
        records = records_of(file.data)
        detect = read_program(records, MODEL, device)
        loss = _loss(read_program(records, LOSS, device)) if "loss" in metadata.methods else None
    except Exception as error:  # the JSON may have any form
        raise ArtifactError(f"{file.name} cannot be run as a program of torch.export: {error}") from error
    run = detect_of_graph(lambda inputs: detect(*inputs), metadata.outputs)
    return Artifact(DetectOnlyMethods(run, metadata, device, loss), metadata, device)


def records_of(data: bytes) -> Mapping[str, memoryview]:
    """Return the records of an archive by name, where they lie. Raise ValueError for compressed ones."""
    records = {}
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for entry in archive.infolist():
            begin = entry.header_offset + 30  # bytes before the name
            for place in (26, 28):  # of the lengths of name and padding
                begin += int.from_bytes(
                    data[entry.header_offset + place : entry.header_offset + place + 2], "little"
                )
            is_stored = entry.compress_type == zipfile.ZIP_STORED and begin + entry.file_size <= len(data)
            require(is_stored, "a record must be stored in the file, without compression", entry.filename)
            records[entry.filename.partition("/")[2]] = memoryview(data)[begin : begin + entry.file_size]
    return records


def read_program(records: Mapping[str, memoryview], name: str, device: torch.device) -> Graph:
    """Return the graph of a name on a device. Raise an exception of any type if it cannot be read."""
    program = _json(records, f"models/{name}.json")
    version = program["schema_version"]["major"]
    require(version == _SCHEMA_MAJOR, "the version of torch.export's schema must be 8", version)
    require(
        bytes(records.get("byteorder", b"little")) == b"little", "its numbers must be little-endian", "others"
    )
    weights = {}
    for kind in ("weights", "constants"):
        config = f"data/{kind}/{name}_{kind}_config.json"
        for weight, payload in _json(records, config)["config"].items() if config in records else ():
            require(payload["use_pickle"] is False, "a weight must be plain numbers, no pickle", weight)
            weights[weight] = _weight(
                records[f"data/{kind}/{payload['path_name']}"], payload["tensor_meta"], device
            )
    graph = read_graph(program, weights, device)
    wanted = _INPUTS.get(name, len(graph.inputs))
    require(len(graph.inputs) == wanted, f"the graph {name} must have {wanted} inputs", len(graph.inputs))
    return graph


def _json(records: Mapping[str, memoryview], name: str) -> Json:
    require(name in records, f"it must hold {name}", list(records))
    return json.loads(bytes(records[name]))


def _weight(numbers: memoryview, meta: Json, device: torch.device) -> Tensor:
    """Return a copy of a weight, in memory of its own."""
    sizes, strides = ([integer(value["as_int"]) for value in meta[key]] for key in ("sizes", "strides"))
    offset, dtype = integer(meta["storage_offset"]["as_int"]), dtype_of(meta["dtype"])
    require(integer(meta["layout"]) == 7, "a weight must be strided", meta["layout"])
    is_whole = len(sizes) == len(strides) and min([offset, *sizes, *strides]) >= 0
    require(is_whole, "sizes and strides of a weight must fit", meta)
    last = offset + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    count = 0 if 0 in sizes else last + 1
    require(
        count * dtype.itemsize <= len(numbers), f"a weight must have {count} numbers", f"{len(numbers)} bytes"
    )
    content = torch.tensor(np.frombuffer(numbers, np.uint8, count * dtype.itemsize), device="cpu")
    if dtype == torch.bool:
        require(bool((content <= 1).all()), "a truth must be 0 or 1", "another byte")
    return content.view(dtype).as_strided(sizes, strides, offset if count else 0).to(device)


def _loss(run: Callable[..., tuple[Tensor, ...]]) -> Loss:
    """Return the loss, whose gradient the graph computes beside the value."""

    def loss(predictions: Tensor, targets: Tensor) -> Tensor:
        batch = [boxes.detach().double().reshape(-1, *boxes.shape[-2:]) for boxes in (predictions, targets)]
        value, *gradients = (result.to(predictions.dtype) for result in run(*batch))
        if not gradients:
            return value
        return with_gradient(predictions, value, gradients[0].reshape(predictions.shape))

    return loss
