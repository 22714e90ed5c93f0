"""examples/call_service.py: what it says of errors. The quick start's test asks Lensbox."""

import asyncio
from pathlib import Path

import pytest
from programs import load_example


def test_a_missing_photo_and_a_missing_service_are_told_photo_by_photo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    photo, missing = tmp_path / "a.jpg", tmp_path / "missing.jpg"
    photo.write_bytes(b"photo")
    program = load_example("call_service.py", monkeypatch, photo, missing, "--url", "http://127.0.0.1:1")
    assert asyncio.run(program["main"]()) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f"{photo}: no service at http://127.0.0.1:1")
    assert second.startswith(f"{missing}: ")
    assert "No such file" in second
