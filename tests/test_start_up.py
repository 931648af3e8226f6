"""What a start imports: ``--help`` and a usage error nothing but the standard library, each command what it needs."""

import json
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from wattloop.commands.contract import Command
from wattloop.commands.main import GROUP

ROOT = Path(__file__).parents[1]
PROFILE = ROOT / "tests/data/perseus/stage_profile/gpt3-175b+a100_sxm_bf16.csv"
SUBCOMMANDS = sorted(entry.name for entry in entry_points(group=GROUP))
PRODUCT = {"wattloop", "wattloop_operator", "wattloop_agent", "wattloop_planner", "wattloop_research", "nvml_simulator"}
# Runs commands in turn, then says with which code each ended, and which modules it has imported first.
RUN = """\
import json, sys
before = set(sys.modules)
from wattloop.commands.main import main
found = []
for words in json.loads(sys.argv[1]):
    try:
        code = main(words)
    except SystemExit as ended:
        code = ended.code
    found.append([code, sorted(set(sys.modules) - before)])
    before = set(sys.modules)
print("\\n" + json.dumps(found))
"""


def packages(names: Sequence[str]) -> set[str]:
    """The top-level packages of these modules that belong neither to the standard library nor to Wattloop."""
    return {name.partition(".")[0] for name in names} - sys.stdlib_module_names - PRODUCT


def imported_by(*commands: Sequence[str]) -> list[tuple[int, set[str]]]:
    """How `wattloop` ends with each of these words in turn, and the packages that it imports first.

    One process for all, because what the first one imports beyond the standard library is found with it.
    """
    ran = subprocess.run([sys.executable, "-c", RUN, json.dumps(commands)], capture_output=True, text=True, check=True)
    return [(code, packages(names)) for code, names in json.loads(ran.stdout.splitlines()[-1])]


def test_help_imports_only_the_standard_library() -> None:
    commands = [["--help"], ["--version"], *([name, "--help"] for name in SUBCOMMANDS)]
    for words, found in zip(commands, imported_by(*commands), strict=True):
        assert found == (0, set()), words


def imported(statement: str) -> list[str]:
    """The modules that a statement imports."""
    code = f"import sys\nbefore = set(sys.modules)\n{statement}\nprint(*sorted(set(sys.modules) - before))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return ran.stdout.split()


def test_the_client_is_imported_without_an_http_client() -> None:
    names = imported("from wattloop import Run")
    assert "wattloop.run.training_run" in names
    assert packages(names) == set()
    assert not {"http.client", "urllib.request", "email", "ssl", "socket", "json", "asyncio"} & set(names)
    # A module of the client costs milliseconds for its dataclasses.
    ours = {name for name in names if name.startswith("wattloop.")}
    assert ours <= {
        "wattloop.run",
        "wattloop.run.training_run",
        "wattloop.wire",
        "wattloop.arguments",
        "wattloop.wire.environment",
        "wattloop.errors",
        "wattloop.wire.launcher",
        "wattloop.printable",
    }


def test_the_client_lists_its_public_names_before_it_imports_them() -> None:
    names = imported("import wattloop; assert dir(wattloop) == wattloop.__all__, dir(wattloop)")
    assert "wattloop.run.training_run" not in names


def test_energy_windows_are_imported_without_a_driver() -> None:
    assert "pynvml" not in imported("from wattloop import EnergyMonitor, Measurement")
    assert packages(imported("import wattloop.compat.zeus")) == set()


def test_the_operator_is_ready_before_it_imports_numerical_libraries() -> None:
    # Policies decide with NumPy and SciPy, kopf watches once it leads, Alembic changes a schema.
    names = imported("import wattloop_operator.operator_main")
    assert {"fastapi", "kubernetes", "sqlalchemy"} <= packages(names)
    later = {"numpy", "scipy", "matplotlib", "PIL", "rich", "kopf", "aiohttp", "alembic", "cryptography", "jsonschema"}
    assert later & packages(names) == set()


REPLAY = ["--policy=zeus", "--history=h.csv", "--default-batch-size=8", "--output=-"]


def test_a_usage_error_imports_only_the_standard_library() -> None:
    commands = [
        *([name, "--no-such-option"] for name in SUBCOMMANDS),
        ["agent", "--sample-interval=0"],
        ["check", "--timeout-seconds=0"],
        ["history", "digits", "--uid=1"],
        ["monitor", "--seconds=0"],
        ["operator", "--workers=0"],
        ["operator", "--report-bind=0.0.0.0:8080"],
        ["pipeline", "emulate", "plan.py"],
        ["plan"],
        ["plan", "--output=plans", "--profile=profile.csv", "--blocking-power=80"],
        ["plan", "evaluate", "freqs_pipeline_00000.py"],
        ["plan", "choose", "--directory=plans", "--deadline=0"],
        ["plot", "digits", "--uid=1"],
        ["replay", *REPLAY, "--batch-sizes=8,8"],
        ["replay", *REPLAY, "--batch-sizes=16,32"],
        ["run", "job.yaml", "--simulated-gpus=65"],
        ["simulate", "--output=-"],
        ["simulate", "--output=-", "--policy=best"],
    ]
    for words, found in zip(commands, imported_by(*commands), strict=True):
        assert found == (2, set()), words


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_every_subcommand_has_an_implementation(name: str) -> None:
    (entry,) = entry_points(group=GROUP, name=name)
    command = entry.load()
    assert isinstance(command, Command)
    assert callable(command.run)


def test_a_plan_imports_only_numpy(tmp_path: Path) -> None:
    pipeline = ["--stages=8", "--microbatches=2", "--blocking-power=83.64"]
    command = ["plan", f"--profile={PROFILE}", *pipeline, f"--output={tmp_path / 'plans'}"]
    names = imported(f"from wattloop.commands.main import main; assert main({command!r}) == 0")
    assert (tmp_path / "plans" / "frontier.csv").exists()
    assert packages(names) == {"numpy"}
    assert not {"numpy.ma", "numpy.f2py", "numpy.testing"} & set(names)
