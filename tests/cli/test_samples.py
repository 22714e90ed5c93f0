"""Sample photographs: errors of the command, which `tests/test_quickstart.py` runs."""

from pathlib import Path

import pytest

from lensbox.cli import samples


@pytest.mark.parametrize(
    ("folder", "has_packages", "message"),
    [
        ("photos", False, "pip install 'lensbox[demo]'"),
        ("file/photos", True, "/photos cannot be written: "),
    ],
)
def test_errors(
    folder: str,
    has_packages: bool,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "file").touch()
    if not has_packages:
        monkeypatch.setattr(samples, "find_spec", lambda name: None)
    monkeypatch.setattr("sys.argv", ["samples", str(tmp_path / folder)])
    with pytest.raises(SystemExit) as ended:
        samples.main()
    assert ended.value.code == 3
    assert message in capsys.readouterr().err
