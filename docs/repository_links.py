"""Links between the site's pages and files of the repository that are not part of the site.

The site stands alone, so on it such a link becomes the file's path. Pages outside of docs/ are checked here, since
Sphinx does not read them.
"""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util import logging

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
OTHER_PAGES = ("*.md", "benchmarks/*.md", "examples/**/*.md")
LINK = re.compile(r"\[([^\]]*)\]\((?![a-z]+:)([^)#\s]*)(#[^)\s]*)?\)")
CODE_BLOCK = re.compile(r"^( *)```.*?^\1```", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#{1,4} (.+)$", re.MULTILINE)

# What a browser loads by itself.
REQUEST = re.compile(r'(?:src="|<link[^>]*href="|@import |url\(["\']?)(https?://[^"\')\s]*)')

logger = logging.getLogger(__name__)


def check_other_pages(_: Sphinx) -> None:
    """Warn of each broken link of a page outside of docs/; a strict build fails by it."""
    for page in (path for pattern in OTHER_PAGES for path in sorted(ROOT.glob(pattern))):
        for match in LINK.finditer(CODE_BLOCK.sub("", page.read_text(encoding="utf-8"))):
            _target(page, match)


def replace_outside_links(app: Sphinx, name: str, source: list[str]) -> None:
    """Replace each link to a file outside of docs/ by its text and path."""
    page = Path(str(app.env.doc2path(name)))

    def replaced(match: re.Match[str]) -> str:
        if not match[2] or (page.parent / match[2]).resolve().is_relative_to(DOCS):
            return match[0]
        path = _target(page, match).relative_to(ROOT).as_posix()
        return f"`{path}`" if match[1].strip("`") in path else f"{match[1]} (`{path}`)"

    source[0] = LINK.sub(replaced, source[0])


def refuse_other_origins(app: Sphinx, exception: Exception | None) -> None:
    """Fail if a built page would load anything from another origin."""
    files = [*Path(app.outdir).rglob("*.html"), *Path(app.outdir).rglob("*.css")] if exception is None else []
    found = {url for file in files for url in REQUEST.findall(file.read_text(encoding="utf-8"))}
    if found:
        raise ExtensionError(f"pages load from other origins: {', '.join(sorted(found))}")


def _target(page: Path, match: re.Match[str]) -> Path:
    path = (page.parent / match[2]).resolve() if match[2] else page
    if not path.exists():
        logger.warning("%s links to %s, which does not exist", page, match[2])
    elif match[3] and path.suffix == ".md" and match[3][1:] not in _anchors(path):
        logger.warning("%s links to %s%s, which has no such heading", page, match[2], match[3])
    return path


def _anchors(page: Path) -> set[str]:
    text = CODE_BLOCK.sub("", page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in HEADING.findall(text)}
