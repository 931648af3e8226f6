"""Checks the pages against the tree: places of behaviours and terms, names that are not used, commands and options."""

import argparse
import functools
import io
import keyword
import re
import subprocess
import tokenize
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from wattloop.commands.main import GROUP

ROOT = Path(__file__).parents[1]
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
GLOSSARY = ROOT / "docs" / "glossary.md"
CODE_TERMS = ROOT / "docs" / "internals" / "terms.md"
# Generated, or looked up and not read in one go.
REFERENCE_PAGES = {"api.md", "commands.md", "metrics.md", "glossary.md", "terms.md"}
MAX_PAGE_LINES = 300
MIN_BEHAVIOURS = 24
# Names that frameworks define, with a word that Wattloop itself no longer uses.
OF_FRAMEWORKS = {"world_size", "get_world_size"}


def rows(page: Path, heading: str) -> list[list[str]]:
    """The cells of each row of the table below a heading."""
    section = page.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


BEHAVIOURS = rows(CONTRIBUTING, "Where things are")
GLOSSARIES = [rows(page, "Terms") for page in (GLOSSARY, CODE_TERMS)]
TERMS = [row for glossary in GLOSSARIES for row in glossary]
FIGURES = rows(ROOT / "docs" / "reference" / "figures.md", "Definitions")
REPLACED = rows(ROOT / "docs" / "decisions" / "names.md", "Replaced names")


def paths(cell: str) -> list[str]:
    """The paths that a cell names in backticks."""
    return re.findall(r"`([\w./-]+)`", cell)


def subwords(name: str) -> tuple[str, ...]:
    """The words of an identifier in lower case, whether it is in snake case or in camel case."""
    return tuple(part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name))


def identifiers(text: str) -> set[str]:
    """Each identifier of a file of Python code: not the words of its strings and comments."""
    return {
        token.string
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.NAME and not keyword.iskeyword(token.string)
    }


def python_files() -> dict[str, str]:
    """The text of each file of Python code, by its path."""
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = [file for file in listed.split() if (ROOT / file).is_file()]
    return {file: (ROOT / file).read_text(encoding="utf-8") for file in files}


def test_the_table_of_behaviours_is_long_enough_to_be_useful() -> None:
    assert len(BEHAVIOURS) >= MIN_BEHAVIOURS


@pytest.mark.parametrize("row", BEHAVIOURS, ids=lambda row: row[0])
def test_each_behaviour_names_a_file_that_exists_and_a_function_that_it_defines(row: list[str]) -> None:
    _, file, name = row
    (path,) = paths(file)
    (defined,) = re.findall(r"`(\w+)`", name)
    text = (ROOT / path).read_text(encoding="utf-8")
    assert re.search(rf"^\s*(?:async )?(?:def|class) {defined}\b|^{defined}\b.* = ", text, re.MULTILINE), defined


@pytest.mark.parametrize("row", TERMS, ids=lambda row: row[0])
def test_each_term_names_a_place_that_exists(row: list[str]) -> None:
    assert len(row) == 3
    assert paths(row[2])
    for path in paths(row[2]):
        assert (ROOT / path).exists(), path


def test_terms_are_in_alphabetical_order_and_each_is_there_once() -> None:
    names = [[row[0].lower() for row in glossary] for glossary in GLOSSARIES]
    assert names == [sorted(each) for each in names]
    assert len({name for each in names for name in each}) == len(TERMS)


def test_no_identifier_contains_a_replaced_name() -> None:
    replaced = {subwords(name) for row in REPLACED for name in re.findall(r"`(\w+)`", row[0])}
    assert replaced
    sizes = {len(each) for each in replaced}

    @functools.cache
    def is_replaced(name: str) -> bool:
        words = () if name in OF_FRAMEWORKS else subwords(name)
        return any(words[start : start + size] in replaced for size in sizes for start in range(len(words) - size + 1))

    found: dict[str, str] = {}
    for file, text in python_files().items():
        # Strings and comments may contain them: only such a file is split into tokens, which takes long.
        if any(is_replaced(word) for word in set(re.findall(r"\w+", text))):
            found |= {name: file for name in identifiers(text) if is_replaced(name)}
    assert found == {}


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.name)
def test_no_page_is_longer_than_a_reader_follows(page: Path) -> None:
    if page.name not in REFERENCE_PAGES:
        assert len(page.read_text(encoding="utf-8").splitlines()) <= MAX_PAGE_LINES


@pytest.mark.parametrize("figure", FIGURES, ids=lambda row: row[0])
def test_every_figure_has_the_function_that_its_row_names(figure: list[str]) -> None:
    path, function = re.findall(r"`([\w./]+)`", figure[2])
    *outer, name = function.split(".")
    source = (ROOT / path).read_text(encoding="utf-8")
    assert re.search(rf"^{'    ' * len(outer)}(def|class) {name}\b", source, re.MULTILINE)
    assert all(re.search(rf"^class {each}\b", source, re.MULTILINE) for each in outer)


PAGES = [page for pattern in ("*.md", "docs/**/*.md", "benchmarks/*.md") for page in sorted(ROOT.glob(pattern))]
# A command in backticks, or on a line of its own, up to what the shell or the text adds to it.
COMMAND = re.compile(r"(?:^ *|`|\$ |&& |bin/)(wattloop|make) ([^`|>#&;()\n]*)", re.MULTILINE)


def commands(page: Path, program: str) -> list[list[str]]:
    """The arguments of each command of this program that a page shows."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    return [words.split() for name, words in COMMAND.findall(text) if name == program]


@functools.cache
def options_of(name: str) -> set[str]:
    """The options of a subcommand, and of those below it."""
    command = next(entry for entry in entry_points(group=GROUP) if entry.name == name).load()
    parser = argparse.ArgumentParser()
    command.configure(parser)
    parsers, found = [parser], {"--help"}
    while parsers:
        for action in parsers.pop()._actions:
            found.update(action.option_strings)
            if isinstance(action, argparse._SubParsersAction):
                parsers.extend(action.choices.values())
    return found


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_command_that_a_page_shows_has_the_options_that_it_shows(page: Path) -> None:
    known = {entry.name for entry in entry_points(group=GROUP)}
    wrong = []
    for words in commands(page, "wattloop"):
        options = options_of(words[0]) if words and words[0] in known else {"--help", "--version"}
        shown = [option for word in words for option in re.findall(r"^\[?(--[a-z][a-z-]*)", word)]
        wrong += [] if options.issuperset(shown) else [" ".join(words)]
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_goal_of_make_that_a_page_shows_exists(page: Path) -> None:
    goals = set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    shown = {words[0] for words in commands(page, "make") if words and re.fullmatch(r"[a-z][a-z0-9-]*", words[0])}
    assert shown <= goals, shown - goals


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    folders = "client|operator|agent|planner|research|simulator|tests|docs|helm|images|benchmarks"
    named = re.findall(rf"`((?:{folders})/[\w./-]+)`", page.read_text())
    assert [path for path in named if not (ROOT / path).exists()] == []


# What users run or read elsewhere: messages, --help, Events, the chart and its notes, alerts, schemas, examples.
NAMING = ["client", "operator", "agent", "planner", "research", "simulator"]
NAMING += ["helm", "crds", "images", "examples", "Makefile"]
NAMED_PAGE = re.compile(r"""\bdocs/([\w/-]+\.md)(?:#([\w-]+)|, \\?"([^"\\]+)\\?")?""")
HEADING = re.compile(r"^#{1,4} (.+)$", re.MULTILINE)


def named_pages(text: str) -> set[tuple[str, str]]:
    """The pages below docs/ that a text names, and the anchor of the heading if it names one."""
    return {(page, anchor or slug(heading)) for page, anchor, heading in NAMED_PAGE.findall(text)}


def slug(heading: str) -> str:
    """The anchor of a heading on the site and where the repository is browsed."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_a_page_is_found_however_a_text_names_it() -> None:
    text = 'see docs/kueue.md; docs/monitoring.md#wattloopnoleader, docs/internals/frequency.md, "Real profiles"'
    assert named_pages(text) == {
        ("kueue.md", ""), ("monitoring.md", "wattloopnoleader"), ("internals/frequency.md", "real-profiles"),
    }  # fmt: skip


def test_every_page_and_heading_exists_that_a_message_the_chart_or_code_names() -> None:
    listed = subprocess.run(["git", "ls-files", *NAMING], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    wrong = []
    for file in listed.split():
        path = ROOT / file
        if not path.is_file() or path.suffix in {".npz", ".ipynb", ".png"}:
            continue
        # A sentence may go on in the next string or the next line of a comment.
        text = re.sub(r'"?\s*\n\s*(?:#|//)?\s*f?"?', " ", path.read_text(encoding="utf-8", errors="replace"))
        for page, anchor in named_pages(text):
            target = ROOT / "docs" / page
            headings = HEADING.findall(target.read_text(encoding="utf-8")) if target.is_file() else []
            if not headings or (anchor and anchor not in map(slug, headings)):
                wrong.append(f"{file}: docs/{page}{anchor and '#'}{anchor}")
    assert wrong == []
