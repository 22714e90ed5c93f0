"""Split a multipart/form-data body into its parts.

This works on bytes in memory, in a worker thread. Starlette's form parser runs on the event loop, writes
large parts to disk, and does not notice a body that ends early.
"""

from typing import NamedTuple

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from lensbox.serve.requests.errors import ApiError, shown


class Part(NamedTuple):
    """A field of a form. The name of a file is ignored."""

    name: str
    content: bytes


def is_form(content_type: str | None) -> bool:
    """Return whether a Content-Type is multipart/form-data."""
    return media_type(content_type) == "multipart/form-data"


def media_type(content_type: str | None) -> str:
    """Return the media type of a Content-Type in small letters, without parameters; "" for None."""
    if content_type is None or ";" not in content_type:
        return (content_type or "").strip().lower()
    # Not every release of python-multipart lowers the case.
    return parse_options_header(content_type)[0].decode("latin-1").lower()


def form_parts(body: bytes, content_type: str, most: int) -> list[Part]:
    """Return the parts of a form in their order.

    Raises ApiError: 400 for a malformed form, 413 for more than `most` parts.
    """
    boundary = parse_options_header(content_type)[1].get(b"boundary")
    if not boundary:
        raise _malformed(f"Content-Type must name a boundary, got {shown(content_type)}")
    collector = _Collector(most)
    try:
        parser = MultipartParser(
            boundary,
            {
                "on_part_begin": collector.on_part_begin,
                "on_part_data": collector.on_part_data,
                "on_header_field": collector.on_header_field,
                "on_header_value": collector.on_header_value,
                "on_header_end": collector.on_header_end,
                "on_headers_finished": collector.on_headers_finished,
                "on_end": collector.on_end,
            },
        )
        parser.write(body)
        parser.finalize()
    except FormParserError as error:
        raise _malformed(f"the body must be a valid multipart form: {error}") from error
    if not collector.ended:
        raise _malformed(f"the form must end with its boundary, got {len(body)} bytes without one")
    return [
        Part(name, bytes(content)) for name, content in zip(collector.names, collector.contents, strict=True)
    ]


class _Collector:
    """Collect the parts that the parser reports."""

    def __init__(self, most: int) -> None:
        self.names: list[str] = []
        self.contents: list[bytearray] = []
        self.ended = False
        self._most = most
        self._header, self._value, self._disposition = b"", b"", b""

    def on_part_begin(self) -> None:
        if len(self.contents) == self._most:
            raise ApiError(413, "too_many_images", f"the form must have at most {self._most} parts, got more")
        self.contents.append(bytearray())
        self._disposition = b""

    def on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def on_header_end(self) -> None:
        if self._header.lower() == b"content-disposition":
            self._disposition = self._value
        self._header, self._value = b"", b""

    def on_headers_finished(self) -> None:
        options = parse_options_header(self._disposition.decode("utf-8", "replace").encode("utf-8"))[1]
        name = options.get(b"name")
        if name is None:
            raise _malformed(
                f"each part needs a Content-Disposition with a name, got {shown(self._disposition)}"
            )
        self.names.append(name.decode("utf-8", "replace"))

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        self.contents[-1] += memoryview(data)[start:end]

    def on_end(self) -> None:
        self.ended = True


def _malformed(message: str) -> ApiError:
    return ApiError(400, "malformed_form", message)
