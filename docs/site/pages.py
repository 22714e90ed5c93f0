"""A hook of mkdocs for `make docs`: pages outside of docs/, the reference, and links into the source.

Pages link by paths in the repository. The hook turns each link into the path of a page of the site, or into
the address of a source file.
"""

import ast
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

REPOSITORY = Path(__file__).resolve().parents[2]

OUTSIDE = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "bench/README.md",
    "cpp_runtime/README.md",
    "examples/README.md",
    "examples/custom_op/README.md",
    "examples/torchvision_detector/README.md",
    "model/MODEL_CARD.md",
)
# Pages outside of docs/ by their path in the site, and where they lie in the repository.
SOURCES = {"index.md": "README.md", **{path: path for path in OUTSIDE}}
REFERENCE = {
    "reference/ops.md": ("The op library, from Python", "lensbox.ops"),
    "reference/runtime.md": ("Running artifacts, from Python", "lensbox.runtime"),
    "reference/export.md": ("Exporting detectors, from Python", "lensbox.export"),
    "reference/client.md": ("The client of the service, from Python", "lensbox.client"),
    "reference/model.md": ("The detector interface", "lensbox.model"),
}

_CODE_OR_LINK = re.compile(r"^```.*?^```$|(!?)\[([^]]*)\]\(([^)\s]+)\)", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside of docs/, and the reference."""
    for path, source in SOURCES.items():
        text = (REPOSITORY / source).read_text(encoding="utf-8")
        files.append(File.generated(config, path, content=text))
    for path, (title, package) in REFERENCE.items():
        names = _public_names(package)
        text = "\n\n".join([f"# {title}", *(f"::: {package}.{name}" for name in names)])
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace the target of each link by its address on the site."""
    source = SOURCES.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    pages = {of: path for path, of in SOURCES.items()}
    for file in files:
        pages.setdefault(f"docs/{file.src_uri}", file.src_uri)

    def lead(match: re.Match[str]) -> str:
        picture, text, target = match.groups()
        if target is None:  # code
            return match[0]
        path, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target) or not path:
            return match[0]
        wanted = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if wanted in pages:
            here = posixpath.relpath(pages[wanted], posixpath.dirname(page.file.src_uri) or ".")
            return f"{picture}[{text}]({here}{'#' if anchor else ''}{anchor})"
        if not (REPOSITORY / wanted).exists():
            return match[0]  # mkdocs says that it is broken
        return f"[{text}]({config.repo_url}/blob/main/{wanted})" if config.repo_url else text

    return _CODE_OR_LINK.sub(lead, markdown)


def _public_names(package: str) -> list[str]:
    """Return `__all__` of a package without importing the package."""
    source = REPOSITORY / package.partition(".")[2] / "__init__.py"
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            names: list[Any] = ast.literal_eval(node.value)
            return [str(name) for name in names]
    raise ValueError(f"{source} must define __all__")
