"""Sphinx's settings of the docs site; docs/decisions/site.md gives the reasons."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent))

import repository_links

project = "Wattloop"
release = metadata.version("wattloop")
html_title = f"Wattloop {release}"
html_theme = "furo"
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
# Punctuation stays as written: commands are copied from pages. It also takes a sixth of the build.
smartquotes = False
exclude_patterns = ["reference/generate.py"]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
# The environment of the site has no training frameworks.
autodoc_mock_imports = ["accelerate", "keras", "lightning", "pytorch_lightning", "torch", "transformers"]
autodoc_typehints = "none"
autodoc_member_order = "bysource"


def setup(app: Sphinx) -> None:
    """Check and rewrite links to files that are not part of the site, and show CSV and Mermaid as text."""
    app.add_lexer("csv", TextLexer)
    app.add_lexer("mermaid", TextLexer)
    app.connect("builder-inited", repository_links.check_other_pages)
    app.connect("source-read", repository_links.replace_outside_links)
    app.connect("build-finished", repository_links.refuse_other_origins)
