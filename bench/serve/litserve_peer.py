"""LitServe around the same artifact, as a program: the peer in `lensbox bench serve`.

usage: python -m lensbox.bench.serve.litserve_peer ARTIFACT DEVICE WORKERS BATCH THREADS PORT

POST /predict takes {"image": base64 of a file}; its workers decode it as the service does.
"""

import base64
import sys
from typing import Any

import litserve
import torch

from lensbox.common.machine import keep_freed_memory
from lensbox.runtime import load_artifact
from lensbox.runtime.detect.detection import detections_to_json


class DetectApi(litserve.LitAPI):  # type: ignore[misc]
    """Decodes, detects and answers as POST /v1/detect does, without its checks."""

    def __init__(self, artifact_path: str, threads: int, batch: int) -> None:
        super().__init__(max_batch_size=batch, batch_timeout=0.005 if batch > 1 else 0.0)
        self.artifact_path = artifact_path
        self.threads = threads

    def setup(self, device: str) -> None:
        torch.set_num_threads(self.threads)
        if torch.device(device).type == "cpu":
            keep_freed_memory()  # as the service does
        self.artifact = load_artifact(self.artifact_path, torch.device(device))
        file = torch.zeros([1, 512, 512], dtype=torch.uint8)
        for size in (1, self.max_batch_size):
            self.artifact.detect_images([file] * size)

    def decode_request(self, request: dict[str, str], **_: Any) -> Any:
        return self.artifact.read_photo(base64.b64decode(request["image"]))

    def batch(self, inputs: list[Any]) -> list[Any]:
        return inputs

    def predict(self, photos: Any, **_: Any) -> Any:
        return self.artifact.detect_images(photos if isinstance(photos, list) else [photos])

    def unbatch(self, output: Any) -> Any:
        return output

    def encode_response(self, output: Any, **_: Any) -> dict[str, Any]:
        found = output[0] if isinstance(output, list) else output
        return {"detections": detections_to_json(found, self.artifact.classes)}


if __name__ == "__main__":
    path, accelerator, *numbers = sys.argv[1:]
    workers, batch, threads, port = map(int, numbers)
    server = litserve.LitServer(
        DetectApi(path, threads, batch),
        accelerator=accelerator,
        devices=1,
        workers_per_device=workers,
        fast_queue=True,
    )
    server.run(host="127.0.0.1", port=port, log_level="warning", generate_client_file=False)
