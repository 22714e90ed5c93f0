"""What is sent: a photograph, and canvases in the binary form of the Open Inference Protocol."""

import io
import json

import numpy as np
import PIL.Image

from lensbox.artifact.metadata import Canvas


def made_up_jpeg() -> bytes:
    """512 x 512 pixels of smooth waves and noise, about as large as a photograph of that size."""
    y, x = np.mgrid[0:512, 0:512]
    waves = [127 + 90 * np.sin(x / 37 + phase) * np.cos(y / 53 - phase) for phase in (0, 1, 2)]
    noise = np.random.default_rng(0).normal(0, 12, (512, 512, 1))
    pixels = (np.stack(waves, -1) + noise).clip(0, 255).astype(np.uint8)
    buffer = io.BytesIO()
    PIL.Image.fromarray(pixels).save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def canvases_body(canvas: Canvas, count: int) -> tuple[bytes, list[str]]:
    """A request with that many black canvases, and the lines of its head that belong to it."""
    shape = [count, canvas.channels, canvas.height, canvas.width]
    pixels = bytes(count * canvas.channels * canvas.height * canvas.width)
    images = {"name": "images", "datatype": "UINT8", "shape": shape}
    header = json.dumps(
        {
            "inputs": [{**images, "parameters": {"binary_data_size": len(pixels)}}],
            "parameters": {"binary_data_output": True},
        }
    ).encode()
    return header + pixels, [f"Inference-Header-Content-Length: {len(header)}"]
