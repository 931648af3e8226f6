"""A thread that ends although nobody ended it is a problem of its process; one that does a single task is not."""

import ast
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from support.ended_threads import watched_names
from wattloop import threads
from wattloop.threads import TaskThread, WatchedThread

ROOT = Path(__file__).resolve().parents[2]


def fail(error: type[BaseException]) -> Callable[[], None]:
    def run() -> None:
        raise error("of a tenant")

    return run


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (fail(IndexError), "the thread writer has ended: IndexError"),
        (fail(SystemExit), "the thread writer has ended: SystemExit"),
        (fail(MemoryError), "the thread writer has ended: MemoryError"),
        (lambda: None, "the thread writer has ended"),
    ],
)
def test_a_watched_thread_that_ends_by_itself_is_a_problem(run: Callable[[], None], expected: str) -> None:
    thread = WatchedThread(run, "writer")
    try:
        thread.start()
        thread.join()
        assert threads.problem() == expected
    finally:
        thread.release()
    assert "writer" not in watched_names()


def test_a_thread_that_its_owner_ends_is_no_problem() -> None:
    ending = threading.Event()
    thread = WatchedThread(ending.wait, "writer")
    thread.start()
    assert ("writer" in watched_names(), threads.problem()) == (True, "")
    thread.release()
    ending.set()
    thread.join()
    assert threads.problem() == ""


def test_a_thread_that_may_return_is_a_problem_only_if_it_fails() -> None:
    done = WatchedThread(lambda: None, "waiter", may_return=True)
    done.start()
    done.join()
    assert ("waiter" in watched_names(), threads.problem()) == (False, "")
    failed = WatchedThread(fail(OSError), "waiter", may_return=True)
    try:
        failed.start()
        failed.join()
        assert threads.problem() == "the thread waiter has ended: OSError"
    finally:
        failed.release()


def test_the_failure_of_a_task_is_logged_and_ends_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    task = TaskThread(fail(IndexError), "log-a")
    task.start()
    task.join()
    assert threads.problem() == ""
    assert caplog.messages == ["unexpected failure of the thread log-a"]


def test_make_lint_refuses_a_thread_that_no_health_check_sees(tmp_path: Path) -> None:
    source = "import threading\nfrom concurrent.futures import ThreadPoolExecutor\n\nthreading.Thread(target=print)\n"
    found = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--config", "pyproject.toml", "--output-format", "concise",
         "--stdin-filename", "operator/wattloop_operator/new.py", "-"],
        input=source, capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip
    assert found.stdout.count("TID251") == 2, found.stdout + found.stderr


def named_threads() -> dict[str, str]:
    """The fixed part of the name of each thread that the product starts, with the file that does."""
    found: dict[str, str] = {}
    for folder in ("client", "operator", "agent", "planner", "research"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            for call in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if not isinstance(call, ast.Call) or len(call.args) < 2:
                    continue
                if getattr(call.func, "id", "") not in {"WatchedThread", "TaskThread", "PeriodicThread"}:
                    continue
                name = call.args[1]
                first = name.values[0] if isinstance(name, ast.JoinedStr) else name
                if isinstance(first, ast.Constant):
                    found[str(first.value)] = file.name
    return found


def test_the_page_of_threads_names_each_thread_of_the_product() -> None:
    page = (ROOT / "docs" / "internals" / "threads.md").read_text(encoding="utf-8")
    names = named_threads()
    assert {"reconcile-", "nvml", "wattloop-energy", "process-"} <= names.keys()
    assert {name: file for name, file in names.items() if f"`{name}" not in page} == {}
