"""`make fuzz`: runs each target in its own process, and shows how to replay a failing input."""

import argparse
import hashlib
import importlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from support.fuzzing import coverage_guided
from support.fuzzing.mutation import run_mutations
from support.fuzzing.target import Target

TARGETS = {
    "socket": ("support.fuzzing.agent_socket", "SocketTarget"),
    "reporting": ("support.fuzzing.reporting", "ReportingTarget"),
    "manifests": ("support.fuzzing.manifests", "ManifestTarget"),
    "plan-service": ("support.fuzzing.plan_service", "PlanServiceTarget"),
    "directives": ("support.fuzzing.directives", "DirectiveTarget"),
    "templates": ("support.fuzzing.templates", "TemplateTarget"),
    "frequency-plans": ("support.fuzzing.frequency_plans", "FrequencyPlanTarget"),
    "plan-files": ("support.fuzzing.plan_files", "PlanFileTarget"),
}
FAILING = ("crash-", "timeout-", "oom-", "leak-")
ENGINES = ("coverage", "mutations")


def open_target(name: str) -> Target:
    module, form = TARGETS[name]
    target: Target = getattr(importlib.import_module(module), form)()
    return target


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m support.fuzzing", description=__doc__)
    parser.add_argument(
        "targets", nargs="*", metavar="TARGET", help=f"one of {', '.join(TARGETS)} (default: each in turn)"
    )
    parser.add_argument("--seconds", type=int, default=60, metavar="S", help="seconds to run each target (default: 60)")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="check this one input")
    parser.add_argument(
        "--engine", choices=ENGINES, help="default: coverage if Atheris is installed, otherwise mutations"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the engine mutations (default: 0)")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("fuzz-output"),
        metavar="DIR",
        help="folder for inputs (default: fuzz-output)",
    )
    parser.add_argument("--in-this-process", action="store_true", help=argparse.SUPPRESS)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Fuzz; returns 0 if no target failed, 1 if one did, and exits with 2 for invalid arguments."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    unknown = [name for name in arguments.targets if name not in TARGETS]
    if unknown or arguments.seconds < 1:
        parser.error(f"expected targets among {', '.join(TARGETS)} and at least one second")
    names = arguments.targets or list(TARGETS)
    if arguments.replay is not None:
        if len(arguments.targets) != 1:
            parser.error("--replay needs exactly one target")
        return _replay(names[0], arguments.replay)
    arguments.engine = arguments.engine or ENGINES[not coverage_guided.is_installed()]
    if arguments.in_this_process:
        return _fuzz(names[0], arguments)
    failed = [name for name in names if not _passes(name, arguments)]
    return 1 if failed else 0


def _replay(name: str, path: Path) -> int:
    data = path.read_bytes()
    target = open_target(name)
    try:
        target.check(data)
    finally:
        target.close()
    _log(f"{name}: {path}: no defect ({len(data)} bytes)")
    return 0


def _passes(name: str, arguments: argparse.Namespace) -> bool:
    """Whether a target finds no defect; it runs in another process, which may crash or hang."""
    folder: Path = arguments.output / name
    folder.mkdir(parents=True, exist_ok=True)
    before = _failing(folder)
    _log(f"{name}: {arguments.seconds} s with the engine {arguments.engine}")
    options = ["--seconds", str(arguments.seconds), "--engine", arguments.engine, "--seed", str(arguments.seed)]
    command = [
        sys.executable,
        "-m",
        "support.fuzzing",
        name,
        *options,
        "--output",
        str(arguments.output),
        "--in-this-process",
    ]
    # Short paths for sockets, and a database in memory, which handles ten times as many requests.
    shared_memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        prefix="wattloop-fuzz-", dir=shared_memory if shared_memory.is_dir() else None
    ) as scratch:
        code = subprocess.run(command, env={**os.environ, "TMPDIR": scratch}, check=False).returncode
    for path in sorted(_failing(folder) - before):
        _log(f"{name}: found a defect; the input is {path}; replay it with: make fuzz TARGETS={name} INPUT={path}")
    _log(f"{name}: failed with exit code {code}" if code else f"{name}: no defect")
    return code == 0


def _failing(folder: Path) -> set[Path]:
    return {path for path in folder.iterdir() if path.name.startswith(FAILING)}


def _fuzz(name: str, arguments: argparse.Namespace) -> int:
    folder = arguments.output / name
    if arguments.engine == "coverage":
        coverage_guided.instrument(TARGETS[name][0])
        coverage_guided.fuzz(open_target(name), folder, arguments.seconds)
        return 0

    def save(data: bytes) -> None:
        (folder / f"crash-{hashlib.sha256(data).hexdigest()[:16]}").write_bytes(data)

    target = open_target(name)
    try:
        count = run_mutations(target, arguments.seed, arguments.seconds, save)
    finally:
        target.close()
    _log(f"{name}: {count} inputs, {count / arguments.seconds:.0f} per second")
    return 0


def _log(line: str) -> None:
    sys.stderr.write(f"{line}\n")
