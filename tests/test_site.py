"""The docs site: what its navigation says, how long its pages are, and whether what they show is true."""

from __future__ import annotations

import argparse
import ast
import importlib.util
import re
import shlex
import textwrap
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from wattloop.commands.contract import GROUP, subcommand_parser
from wattloop.errors import UsageError
from wattloop_operator.api.manifests import check_text
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.schemas import structural_schema
from wattloop_operator.reconcile.attempt import attempt_conditions
from wattloop_operator.reconcile.job import job_conditions

DOCS = Path(__file__).parents[1] / "docs"
MAX_WORDS = 30_000
# Five minutes at 240 words a minute.
MAX_PAGE_WORDS = 1_200
MAX_TERMS = 60
MAX_QUICKSTART_LINES = 160
MAX_QUICKSTART_STEPS = 4
# Tables that a reader looks something up in.
LOOKED_UP = {"coming-from.md", "glossary.md"}
NOT_FOR_READERS = {"Reference", "For contributors"}
TOCTREE = re.compile(r"```\{toctree\}\n:caption: ([^\n]+)\n(?::[a-z]+:[^\n]*\n)*\n(.*?)```", re.DOTALL)
FENCED = re.compile(r"^( *)```([^\n]*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^|(?<=\n\n))((?:    [^\n]*\n+)+)")
# Parts of other files: values of the chart, a role, a NetworkPolicy.
OF_OTHERS = {"operator", "networkPolicy", "rules", "egress"}
SPEC: Any = structural_schema(RecurringTrainingJob)["properties"]["spec"]


def navigation() -> dict[str, list[Path]]:
    """The pages below each caption of the navigation."""
    found = TOCTREE.findall((DOCS / "index.md").read_text(encoding="utf-8"))
    return {caption: [DOCS / f"{name}.md" for name in names.split()] for caption, names in found}


READERS = [DOCS / "index.md"] + [
    page for caption, pages in navigation().items() if caption not in NOT_FOR_READERS for page in pages
]


def word_count(page: Path) -> int:
    """Words outside of code blocks; a sign such as | or – is none."""
    return len(re.findall(r"\S*\w\S*", FENCED.sub("", page.read_text(encoding="utf-8"))))


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """Language and text of each code block; indented ones have no language."""
    text = page.read_text(encoding="utf-8")
    for _, language, block in FENCED.findall(text):
        yield language.strip(), textwrap.dedent(block)
    for block in INDENTED.findall(FENCED.sub("", text)):
        yield "", textwrap.dedent(block)


def test_readers_have_at_most_30_000_words_and_no_page_takes_over_five_minutes() -> None:
    counts = {page.relative_to(DOCS).as_posix(): word_count(page) for page in READERS}
    assert sum(counts.values()) <= MAX_WORDS
    assert {name: n for name, n in counts.items() if n > MAX_PAGE_WORDS and name not in LOOKED_UP} == {}


def test_the_readme_links_every_page_for_users() -> None:
    # The navigation of the site is hidden where the repository is browsed.
    linked = set(re.findall(r"\]\((docs/[^)#]+)", (DOCS.parent / "README.md").read_text(encoding="utf-8")))
    assert {page.relative_to(DOCS.parent).as_posix() for page in READERS} - linked == set()


def test_the_glossary_has_at_most_60_terms() -> None:
    rows = [line for line in (DOCS / "glossary.md").read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    assert 0 < len(rows) - 2 <= MAX_TERMS


def test_the_quickstart_is_short_and_shows_the_output_of_every_command() -> None:
    text = (DOCS / "quickstart.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MAX_QUICKSTART_LINES
    assert 0 < len(re.findall(r"^## ", text, re.MULTILINE)) <= MAX_QUICKSTART_STEPS
    languages = [language for language, _ in blocks(DOCS / "quickstart.md")]
    assert languages
    assert languages == ["sh", "text"] * (len(languages) // 2)


def command_lines(page: Path) -> list[str]:
    """The complete command lines of `wattloop` in code blocks, without what the shell does."""
    text = "\n".join(block.replace("\\\n", " ") for language, block in blocks(page) if language != "text")
    lines = re.findall(r"^(?:kubectl |\.venv/bin/)?wattloop ([a-z].*)$", text, re.MULTILINE)
    return [line for line in lines if not re.search(r"…|\[|\.\.\.", line)]


@pytest.mark.parametrize("page", READERS, ids=lambda page: page.stem)
def test_every_command_line_is_accepted(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Of the checks, that of `wattloop ui` alone looks for a file: the database of the present folder.
    (tmp_path / "wattloop.db").touch()
    monkeypatch.chdir(tmp_path)
    commands = {entry.name: entry for entry in entry_points(group=GROUP)}
    for line in command_lines(page):
        name, *arguments = shlex.split(re.split(r" [|>&] |\s#", line)[0], comments=True)
        command = commands[name].load()
        parser = subcommand_parser(f"wattloop {name}", command)
        parser.exit_on_error = False
        try:
            command.check(parser.parse_args(arguments))
        except (argparse.ArgumentError, UsageError, SystemExit) as error:
            pytest.fail(f"{line}: {error}")


@pytest.mark.parametrize("page", READERS, ids=lambda page: page.stem)
def test_every_file_that_kubectl_applies_exists(page: Path) -> None:
    applied = re.findall(r"kubectl apply\b[^\n`]* (?:-f|--filename)[ =]([^\s`]+)", page.read_text(encoding="utf-8"))
    # `make dist` writes dist/.
    paths = [path for path in applied if "/" in path and not path.startswith(("/", "dist/"))]
    assert [path for path in paths if not (DOCS.parent / path).exists()] == []


def unknown_fields(value: Any, schema: Any, path: str) -> Iterator[str]:
    """The fields of a part of a manifest that its schema does not have."""
    if isinstance(value, list):
        for each in value:
            yield from unknown_fields(each, schema.get("items", {}), path)
    elif isinstance(value, dict) and not schema.get("x-kubernetes-preserve-unknown-fields") and "properties" in schema:
        for name, part in value.items():
            if name not in schema["properties"]:
                yield f"{path}.{name}"
            else:
                yield from unknown_fields(part, schema["properties"][name], f"{path}.{name}")


def problems_of(document: Any, text: str) -> list[str]:
    """What is wrong with a manifest of Wattloop's kinds, or with a part of a job; nothing for `OF_OTHERS`."""
    if not isinstance(document, dict):
        return []
    if str(document.get("apiVersion", "")).startswith("wattloop.dev/"):
        return [str(problem) for problem in check_text("page", text).problems]
    if "kind" in document or "apiVersion" in document:
        return []
    return [] if set(document) <= OF_OTHERS else list(unknown_fields(document.get("spec", document), SPEC, "spec"))


def test_a_part_of_a_job_with_an_unknown_field_is_found() -> None:
    assert problems_of({"power": {}, "objectiv": {}}, "") == ["spec.objectiv"]
    assert problems_of({"spec": {"power": {"limits": {}}}}, "") == ["spec.power.limits"]
    assert problems_of({"rules": []}, "") == []


@pytest.mark.parametrize("page", READERS, ids=lambda page: page.stem)
def test_every_part_of_a_manifest_is_valid(page: Path) -> None:
    for language, block in blocks(page):
        if language == "yaml" or (not language and re.match(r"\w+:\s", block)):
            for document in YAML(typ="safe").load_all(block):
                assert problems_of(document, block) == [], block


def imported_names(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Module and name of each import of Wattloop's."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("wattloop"):
            yield from ((node.module, alias.name) for alias in node.names)


def names_of_module(node: ast.AST) -> Iterator[str]:
    """The names that a module defines or imports, also below an `if` or a `try`."""
    for each in ast.iter_child_nodes(node):
        match each:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                yield from (alias.asname or alias.name for alias in aliases)
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case _:
                yield from names_of_module(each)


@pytest.mark.parametrize("page", READERS, ids=lambda page: page.stem)
def test_every_python_block_compiles_and_what_it_imports_of_wattloop_exists(page: Path) -> None:
    for language, block in blocks(page):
        if language == "python" or (not language and re.match(r"(import|from|with) ", block)):
            for module, name in imported_names(ast.parse(block)):
                # Not imported: integrations need their frameworks.
                found = importlib.util.find_spec(module)
                assert found is not None, module
                assert found.origin is not None
                source = ast.parse(Path(found.origin).read_text(encoding="utf-8"))
                assert name in set(names_of_module(source)), (module, name)


def test_a_name_in_a_text_is_none_of_its_module() -> None:
    source = 'from a import b as c\nif c:\n    D = 1\ndef f():\n    """x"""\n    y = 2\nclass G:\n    z: int = 3\n'
    assert sorted(names_of_module(ast.parse(source))) == ["D", "G", "c", "f"]


def test_troubleshooting_has_every_condition_that_can_trouble_a_user() -> None:
    text = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    of_jobs, of_attempts = text.split("\n## Conditions of a job\n")[1].split("\n## Conditions of an attempt\n")
    shown = [set(re.findall(r"^\| `(\w+)`", part, re.MULTILINE)) for part in (of_jobs, of_attempts.split("\n## ")[0])]
    job = job_conditions
    assert shown[0] == {
        job.READY, job.LAST_RUN, job.LEARNS, job.METRIC, job.TRANSFER, job.RUN_REQUEST, job.PLAN_AVAILABLE,
        job.PODS_STARTED, job.TARGET_UNREACHABLE, job.FIRST_EVALUATION,
    }  # fmt: skip
    attempt = attempt_conditions
    assert shown[1] == {
        attempt.RUNNING, job.QUEUED, attempt.POWER_LIMIT_HELD, attempt.POWER_PROFILE_COMPLETE, attempt.RANKS_HEALTHY,
        attempt.DEVICES_HEALTHY, attempt.ENERGY_AGREES, attempt.PUBLISHED,
    }  # fmt: skip
