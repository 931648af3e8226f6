"""Start-up time and memory of the commands and of the operator, and of bare Python in the same run.

Run from the repository's root:

    .venv/bin/python -P benchmarks/start_up.py
    .venv/bin/python -P benchmarks/start_up.py --operator

The first prints one row per command: ``--help`` and a usage error of every subcommand, ``wattloop plan`` of 192
operations, ``import numpy``, and the client's ``from wattloop import Run``. The second needs the programs of the
cluster tests (docs/internals/testing.md). It starts a control plane and `wattloop operator`, and prints the time
until the operator is ready and its memory while it is idle.

Every command runs several times, in turn with the others, and the minimum of each value counts, because other work on
the machine only adds. The values are wall time, CPU time (user and system) and peak resident memory. Compiled modules
are cached in a separate folder, as for an installed package.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
WATTLOOP = str(Path(sys.executable).parent / "wattloop")
PROFILE = REPOSITORY / "tests/data/perseus/stage_profile/gpt3-175b+a100_sxm_bf16.csv"
BARE = "python -c pass"
NUMPY = "python -c 'import numpy'"
MEBIBYTE = 1024  # in the kilobytes that the kernel counts in
POLL_SECONDS = 0.005
READY_WITHIN_SECONDS = 120.0
IDLE_SECONDS = 10.0


@dataclass(frozen=True)
class Figures:
    """Time and memory of one start.

    Attributes:
        wall_seconds: From start to end.
        processor_seconds: User and system time.
        megabytes: Peak resident memory, in MiB.
        exit_code: Exit code of the command.
    """

    wall_seconds: float
    processor_seconds: float
    megabytes: float
    exit_code: int

    def minimum(self, other: Figures) -> Figures:
        """The minimum of each value."""
        if other.exit_code != self.exit_code:
            raise RuntimeError(f"ended with {self.exit_code}, then with {other.exit_code}")
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
        return Figures(*(min(pair) for pair in pairs))


# Peak memory includes that of the forking process, so a bare interpreter starts and measures the command.
LAUNCHER = """\
import os, sys, time
devnull = os.open(os.devnull, os.O_RDWR)
actions = [(os.POSIX_SPAWN_DUP2, devnull, stream) for stream in (0, 1, 2)]
began = time.perf_counter()
process = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=actions)
_, status, usage = os.wait4(process, 0)
wall = time.perf_counter() - began
print(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss, os.waitstatus_to_exitcode(status))
"""


def started(command: Sequence[str], folder: Path) -> Figures:
    """Run a command once in this folder, without output."""
    launcher = [sys.executable, "-I", "-S", "-c", LAUNCHER, *command]
    ran = subprocess.run(launcher, cwd=folder, capture_output=True, text=True, check=True, env=environment(folder))
    wall, processor, kilobytes, code = ran.stdout.split()
    return Figures(float(wall), float(processor), int(kilobytes) / MEBIBYTE, int(code))


def environment(folder: Path) -> dict[str, str]:
    """An environment that caches compiled modules below this folder."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return inherited | {"PYTHONPYCACHEPREFIX": str(folder / "compiled")}


def commands(folder: Path) -> dict[str, tuple[int, list[str]]]:
    """The commands by name, with their expected exit codes."""
    plan = ["plan", "--profile", str(PROFILE), "--stages", "8", "--microbatches", "12", "--blocking-power", "83.64"]
    found = {
        BARE: (0, [sys.executable, "-c", "pass"]),
        NUMPY: (0, [sys.executable, "-c", "import numpy"]),
        "from wattloop import Run": (0, [sys.executable, "-c", "from wattloop import Run"]),
        "from wattloop import EnergyMonitor": (0, [sys.executable, "-c", "from wattloop import EnergyMonitor"]),
        "wattloop --version": (0, [WATTLOOP, "--version"]),
        "wattloop --help": (0, [WATTLOOP, "--help"]),
        "wattloop plan, 192 operations": (0, [WATTLOOP, *plan, "--output", str(folder / "plans")]),
    }
    for name in sorted(entry.name for entry in entry_points(group="wattloop.commands")):
        found[f"wattloop {name} --help"] = (0, [WATTLOOP, name, "--help"])
        found[f"wattloop {name} --no-such-option"] = (2, [WATTLOOP, name, "--no-such-option"])
    return found


def measured_commands(repeats: int) -> dict[str, Figures]:
    """The minimum values of each command over the repeats."""
    best: dict[str, Figures] = {}
    with tempfile.TemporaryDirectory(prefix="wattloop-benchmark-") as name:
        folder = Path(name)
        listed = commands(folder)
        for _ in range(repeats):
            for title, (exit_code, command) in listed.items():
                figures = started(command, folder)
                if figures.exit_code != exit_code:
                    raise RuntimeError(f"{title}: ended with {figures.exit_code}, expected {exit_code}")
                best[title] = best[title].minimum(figures) if title in best else figures
    return best


def print_commands(best: dict[str, Figures]) -> None:
    """A Markdown table."""
    bare, numpy = best[BARE], best[NUMPY]
    sys.stdout.write("| command | wall s | × bare Python | CPU s | × bare Python | MB |\n|---|--:|--:|--:|--:|--:|\n")
    for title, figures in best.items():
        wall, processor = figures.wall_seconds, figures.processor_seconds
        sys.stdout.write(
            f"| `{title}` | {wall:.3f} | {wall / bare.wall_seconds:.1f} | {processor:.3f} | "
            f"{processor / bare.processor_seconds:.1f} | {figures.megabytes:.1f} |\n"
        )
    plan = best["wattloop plan, 192 operations"]
    sys.stdout.write(
        f"\nwattloop plan of 192 operations minus import numpy: {plan.wall_seconds - numpy.wall_seconds:.3f} s wall, "
        f"{plan.processor_seconds - numpy.processor_seconds:.3f} s CPU\n"
    )


def measured_operator(repeats: int) -> dict[str, object]:
    """Start-up time and memory of the operator on a separate control plane."""
    sys.path.insert(0, str(REPOSITORY / "tests"))
    # Deferred, because these modules need the development tools.
    from support.binaries.build import USED_BY_TESTS, ensure  # noqa: PLC0415
    from support.control_plane.commands import ClusterCommand  # noqa: PLC0415
    from support.control_plane.control_plane import running_control_plane  # noqa: PLC0415
    from support.control_plane.operator_process import OperatorProcess  # noqa: PLC0415
    from support.free_ports import free_port  # noqa: PLC0415

    programs = ensure(USED_BY_TESTS)
    starts: list[dict[str, float]] = []
    bare: list[Figures] = []
    with tempfile.TemporaryDirectory(prefix="wattloop-benchmark-") as name:
        folder = Path(name)
        (folder / "plane").mkdir()
        # The operator inherits the environment.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(folder / "compiled")
        with running_control_plane(programs, folder / "plane") as plane:
            kubectl = ClusterCommand(programs["kubectl"], plane.admin_kubeconfig, folder)
            kubectl("apply", "--server-side", f"--filename={REPOSITORY / 'crds'}")
            kubectl("wait", "--for=condition=Established", f"--filename={REPOSITORY / 'crds'}", "--timeout=60s")
            # The first start compiles the modules, the second creates the database.
            for number in range(repeats + 2):
                bare.append(started([sys.executable, "-c", "pass"], folder))
                port = free_port()
                began = time.perf_counter()
                operator = OperatorProcess(
                    plane.admin_kubeconfig,
                    folder,
                    f"sqlite:///{folder}/{'wattloop' if number else 'unmeasured'}.db",
                    ("default", f"benchmark-{number}"),
                    options=(f"--health-bind=127.0.0.1:{port}",),
                )
                await_ready(port)
                figures = {"ready_seconds": time.perf_counter() - began, **processor_and_memory(operator.pid)}
                operator.await_line(" leads")
                time.sleep(IDLE_SECONDS)
                figures["idle_megabytes"] = processor_and_memory(operator.pid)["megabytes"]
                operator.stop()
                starts.append(figures)
    _, first, *further = starts
    return {
        "bare_python_wall_seconds": round(min(each.wall_seconds for each in bare), 3),
        "bare_python_processor_seconds": round(min(each.processor_seconds for each in bare), 3),
        "new_database_ready_seconds": round(first["ready_seconds"], 3),
        "ready_seconds": round(min(each["ready_seconds"] for each in further), 3),
        "ready_processor_seconds": round(min(each["processor_seconds"] for each in further), 3),
        "idle_megabytes": round(min(each["idle_megabytes"] for each in further), 1),
        "new_database_idle_megabytes": round(first["idle_megabytes"], 1),
    }


def await_ready(port: int) -> None:
    """Wait until /readyz succeeds.

    Raises:
        RuntimeError: The operator is not ready in time.
    """
    deadline = time.monotonic() + READY_WITHIN_SECONDS
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5):
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(POLL_SECONDS)
    raise RuntimeError(f"the operator was not ready within {READY_WITHIN_SECONDS:g} s")


def processor_and_memory(pid: int) -> dict[str, float]:
    """CPU seconds and resident memory in MiB of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    resident = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:"))
    return {
        "processor_seconds": (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"),
        "megabytes": int(resident) / MEBIBYTE,
    }


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="number of starts of each (default: 5)")
    parser.add_argument("--operator", action="store_true", help="measure the operator instead of the commands")
    options = parser.parse_args()
    if options.operator:
        sys.stdout.write(json.dumps(measured_operator(options.repeats), indent=2) + "\n")
    else:
        print_commands(measured_commands(options.repeats))
    return 0


if __name__ == "__main__":
    sys.exit(main())
