"""The docs site: what its navigation says, how long its pages are, and the files and commands that they name."""

import argparse
import re
import shlex
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from support.reader_pages.pages import DOCS, FENCED, READERS, blocks
from wattloop.commands.contract import GROUP, subcommand_parser
from wattloop.errors import UsageError
from wattloop_operator.reconcile.attempt import attempt_conditions
from wattloop_operator.reconcile.job import job_conditions

MAX_WORDS = 30_000
# Five minutes at 240 words a minute.
MAX_PAGE_WORDS = 1_200
MAX_TERMS = 60
MAX_QUICKSTART_LINES = 160
MAX_QUICKSTART_STEPS = 4
# Tables that a reader looks something up in.
LOOKED_UP = {"coming-from.md", "glossary.md"}


def word_count(page: Path) -> int:
    """Words outside of code blocks; a sign such as | or – is none."""
    return len(re.findall(r"\S*\w\S*", FENCED.sub("", page.read_text(encoding="utf-8"))))


def test_readers_have_at_most_30_000_words_and_no_page_takes_over_five_minutes() -> None:
    counts = {page.relative_to(DOCS).as_posix(): word_count(page) for page in READERS}
    assert sum(counts.values()) <= MAX_WORDS
    assert {name: n for name, n in counts.items() if n > MAX_PAGE_WORDS and name not in LOOKED_UP} == {}


def test_the_readme_links_every_page_for_users() -> None:
    # The navigation of the site is hidden where the repository is browsed.
    linked = set(re.findall(r"\]\((docs/[^)#]+)", (DOCS.parent / "README.md").read_text(encoding="utf-8")))
    assert {page.relative_to(DOCS.parent).as_posix() for page in READERS} - linked == set()


def added_lines(text: str) -> list[list[str]]:
    """The lines that each diff of a page adds."""
    diffs = re.findall(r"^```diff\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [re.findall(r"^\+(?!\+\+ ) *(.+)", diff, re.MULTILINE) for diff in diffs]


def test_the_readme_counts_the_lines_of_its_diff_and_the_frameworks_need_as_few() -> None:
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    (added,) = added_lines(readme)
    assert "change or add six lines of the training script" in readme
    assert len(added) == 6
    example = (DOCS.parent / "examples/frameworks/train_pytorch.py").read_text(encoding="utf-8")
    assert [line for line in added if line not in example] == []
    frameworks = (DOCS / "integrations.md").read_text(encoding="utf-8").partition("\n## Hugging Face Trainer\n")[2]
    counts = [len(lines) for lines in added_lines(frameworks)]
    assert len(counts) == 4
    assert max(counts) <= len(added)


def test_the_readme_has_the_manifest_of_the_quickstart_whole() -> None:
    manifest = (DOCS.parent / "examples/digits/job.yaml").read_text(encoding="utf-8")
    assert len(manifest.splitlines()) <= 25
    assert "examples/digits/job.yaml" in (DOCS / "quickstart.md").read_text(encoding="utf-8")
    without_comment = manifest.partition("\n")[2]
    assert f"```yaml\n{without_comment}```" in (DOCS.parent / "README.md").read_text(encoding="utf-8")


def test_the_installation_page_counts_the_kinds() -> None:
    kinds = list((DOCS.parent / "crds").glob("*.yaml"))
    assert len(kinds) == 5
    assert "five kinds of `wattloop.dev/v1alpha1`" in (DOCS / "installation.md").read_text(encoding="utf-8")


def test_the_glossary_has_at_most_60_terms() -> None:
    rows = [line for line in (DOCS / "glossary.md").read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    assert 0 < len(rows) - 2 <= MAX_TERMS


def test_the_quickstart_is_short_and_shows_the_output_of_every_command() -> None:
    text = (DOCS / "quickstart.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MAX_QUICKSTART_LINES
    assert 0 < len(re.findall(r"^## ", text, re.MULTILINE)) <= MAX_QUICKSTART_STEPS
    languages = [block.language for block in blocks(DOCS / "quickstart.md")]
    assert languages
    assert languages == ["sh", "text"] * (len(languages) // 2)


def command_lines(page: Path) -> list[str]:
    """The complete command lines of `wattloop` in code blocks, without what the shell does."""
    text = "\n".join(block.text.replace("\\\n", " ") for block in blocks(page) if block.kind == "commands")
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


def test_troubleshooting_has_every_condition_that_can_trouble_a_user() -> None:
    text = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    of_jobs, of_attempts = text.split("\n## Conditions of a job\n")[1].split("\n## Conditions of an attempt\n")
    shown = [set(re.findall(r"^\| `(\w+)`", part, re.MULTILINE)) for part in (of_jobs, of_attempts.split("\n## ")[0])]
    job = job_conditions
    assert shown[0] == {
        job.READY, job.LAST_RUN, job.LEARNS, job.METRIC, job.TRANSFER, job.RUN_REQUEST, job.PLAN_AVAILABLE,
        job.PODS_STARTED, job.TARGET_UNREACHABLE, job.FIRST_EVALUATION,
        job.BATCH_SIZE_PASSED, job.HISTORY_LOST,
    }  # fmt: skip
    attempt = attempt_conditions
    assert shown[1] == {
        attempt.RUNNING, job.QUEUED, attempt.POWER_LIMIT_HELD, attempt.POWER_PROFILE_COMPLETE, attempt.RANKS_HEALTHY,
        attempt.DEVICES_HEALTHY, attempt.ENERGY_AGREES, attempt.PUBLISHED,
    }  # fmt: skip
