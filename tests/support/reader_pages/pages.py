"""The pages that readers read, by the site's navigation, and the code blocks on them."""

import ast
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).parents[3] / "docs"
NOT_FOR_READERS = {"Reference", "For contributors"}
TOCTREE = re.compile(r"```\{toctree\}\n:caption: ([^\n]+)\n(?::[a-z]+:[^\n]*\n)*\n(.*?)```", re.DOTALL)
FENCED = re.compile(r"^( *)```([^\n]*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^|(?<=\n\n))((?:    [^\n]*\n+)+)")
COMMAND = re.compile(r"(?:\.venv/bin/)?(?:wattloop|kubectl|helm|make|git|rm|openssl|torchrun|source)\b")
# A line of YAML with a key, and no annotated name of Python.
KEY = re.compile(r"[a-zA-Z]+:\s")


@dataclass(frozen=True)
class Block:
    """A code block.

    Attributes:
        page: The page, relative to docs/.
        language: As its fence says; empty for an indented one.
    """

    page: str
    language: str
    text: str

    @property
    def begin(self) -> str:
        """Its first line, by which it is named beside its page."""
        return self.text.split("\n", 1)[0].strip()

    @property
    def kind(self) -> str:
        """What it is: `python`, `manifest`, `commands` or their `output`; else its language, or `text`."""
        if self.language:
            return {"yaml": "manifest", "sh": "commands", "text": "output"}.get(self.language, self.language)
        if COMMAND.match(self.text):
            return "commands"
        if KEY.match(self.text):
            return "manifest"
        return "python" if _is_python(self.text) else "text"

    def __str__(self) -> str:
        return f"{self.page}: {self.begin}"


def navigation() -> dict[str, list[Path]]:
    """The pages below each caption of the navigation."""
    found = TOCTREE.findall((DOCS / "index.md").read_text(encoding="utf-8"))
    return {caption: [DOCS / f"{name}.md" for name in names.split()] for caption, names in found}


READERS = [DOCS / "index.md"] + [
    page for caption, pages in navigation().items() if caption not in NOT_FOR_READERS for page in pages
]


def blocks(page: Path) -> Iterator[Block]:
    """The code blocks of a page; a directive of the site is none."""
    text, name = page.read_text(encoding="utf-8"), page.relative_to(DOCS).as_posix()
    found = [(each.start(), each[2].strip(), each[3]) for each in FENCED.finditer(text)]
    # Of equal length, so that places stay.
    without = FENCED.sub(lambda each: "\n" * len(each[0]), text)
    found += [(each.start(), "", each[1]) for each in INDENTED.finditer(without)]
    for _, language, block in sorted(found):
        if not language.startswith("{"):
            yield Block(name, language, textwrap.dedent(block).rstrip() + "\n")


BLOCKS = [block for page in READERS for block in blocks(page)]


def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True
