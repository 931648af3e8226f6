"""What a start imports: ``--help`` and a usage error nothing but the standard library, each command what it needs."""

from __future__ import annotations

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
PRODUCT = {"wattloop", "wattloop_operator", "wattloop_agent", "wattloop_planner", "nvml_simulator"}
# Runs the command, then says which packages beyond the standard library it has imported, and with which code it ended.
RUN = """\
import json, sys
before = set(sys.modules)
from wattloop.commands.main import main
try:
    code = main(sys.argv[1:])
except SystemExit as ended:
    code = ended.code
print("\\n" + json.dumps([code, sorted(set(sys.modules) - before)]))
"""


def packages(names: Sequence[str]) -> set[str]:
    """The top-level packages of these modules that belong neither to the standard library nor to Wattloop."""
    return {name.partition(".")[0] for name in names} - sys.stdlib_module_names - PRODUCT


def imported_by(*words: str) -> tuple[int, list[str]]:
    """How `wattloop` with these words ends, and the modules that it imports."""
    ran = subprocess.run([sys.executable, "-c", RUN, *words], capture_output=True, text=True, check=True)
    code, names = json.loads(ran.stdout.splitlines()[-1])
    return code, names


@pytest.mark.parametrize("words", [["--help"], ["--version"], *([name, "--help"] for name in SUBCOMMANDS)])
def test_help_imports_only_the_standard_library(words: list[str]) -> None:
    code, names = imported_by(*words)
    assert code == 0
    assert packages(names) == set()


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
        "wattloop.run.metric",
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


@pytest.mark.parametrize(
    "words",
    [
        *([name, "--no-such-option"] for name in SUBCOMMANDS),
        ["agent", "--sample-interval=0"],
        ["check", "--timeout-seconds=0"],
        ["history", "digits", "--eta=2"],
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
    ],
)
def test_a_usage_error_imports_only_the_standard_library(words: list[str]) -> None:
    code, names = imported_by(*words)
    assert code == 2
    assert packages(names) == set()


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_every_subcommand_has_an_implementation(name: str) -> None:
    (entry,) = entry_points(group=GROUP, name=name)
    command = entry.load()
    assert isinstance(command, Command)
    assert callable(command.run)


def test_a_plan_imports_only_numpy(tmp_path: Path) -> None:
    pipeline = ["--stages=8", "--microbatches=12", "--blocking-power=83.64"]
    code, names = imported_by("plan", f"--profile={PROFILE}", *pipeline, f"--output={tmp_path / 'plans'}")
    assert code == 0
    assert (tmp_path / "plans" / "frontier.csv").exists()
    assert packages(names) == {"numpy"}
    assert not {"numpy.ma", "numpy.f2py", "numpy.testing"} & set(names)
