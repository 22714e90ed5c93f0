"""examples/ops.ipynb prints what it shows."""

import contextlib
import io
import json
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parents[2] / "examples" / "ops.ipynb"


def test_every_cell_prints_what_the_notebook_shows() -> None:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert len(code) > 8
    names: dict[str, Any] = {}
    for number, cell in enumerate(code, start=1):
        shown = "".join(text for output in cell["outputs"] for text in output["text"])
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("".join(cell["source"]), f"cell {number}", "exec"), names)
        assert printed.getvalue() == shown
