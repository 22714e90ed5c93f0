"""Headless Chromium for tests of the page."""

import importlib.util
import shutil
from pathlib import Path

# No connections to other hosts, and a fake camera.
OPTIONS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
]


def chromium_path() -> str | None:
    """Return the system's Chromium; None lets playwright use its own."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def missing_for_browser() -> str:
    """Return the program or package that tests in a browser lack; "" if none."""
    if importlib.util.find_spec("playwright") is None:
        return "the Python package playwright"
    own = (Path.home() / ".cache" / "ms-playwright").glob("chromium*")
    return "" if chromium_path() or any(own) else "Chromium (make browser)"
