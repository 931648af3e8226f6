"""``python -m nvml_simulator.control PATH ACTION``: controls simulated GPUs from a test or a shell.

Example:
    python -m nvml_simulator.control gpus restart-driver
    python -m nvml_simulator.control gpus fault '*' --gpu 1 --code 15
    python -m nvml_simulator.control gpus describe
"""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, fields

from nvml_simulator.models import ThermalModel
from nvml_simulator.simulated_machine import NVML_ERROR_UNINITIALIZED, NVML_SUCCESS, GpuName, Machine
from wattloop.errors import UsageError, WattloopError

Action = Callable[[Machine, argparse.Namespace], object]


def _gpu(text: str) -> GpuName:
    return int(text) if text.isdecimal() else text


def _set_thermal_model(machine: Machine, arguments: argparse.Namespace) -> None:
    values = {field.name: getattr(arguments, field.name) for field in fields(ThermalModel)}
    machine.set_thermal_model(None if arguments.off else ThermalModel(**values))


def _fault(machine: Machine, arguments: argparse.Namespace) -> object:
    ticket = machine.inject_fault(
        arguments.function,
        code=arguments.code,
        gpu=arguments.gpu,
        first_call=arguments.first_call,
        count=arguments.count,
        delay_seconds=arguments.delay_seconds,
    )
    return {"ticket": ticket}


def _with_stale_code(act: Callable[..., None]) -> Action:
    return lambda machine, arguments: act(machine, stale_code=arguments.stale_code)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m nvml_simulator.control",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("path", help="state file, created by python -m nvml_simulator")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def add(name: str, act: Action, summary: str) -> argparse.ArgumentParser:
        action = actions.add_parser(name, help=summary, description=summary)
        action.set_defaults(act=act)
        return action

    def add_gpu(action: argparse.ArgumentParser) -> None:
        action.add_argument("gpu", type=_gpu, help="index or UUID")

    add("describe", lambda gpus, _: asdict(gpus.describe()), "print the exact state of the machine as JSON")
    partition = add(
        "partition",
        lambda gpus, given: gpus.partition(given.gpu, given.mig_devices),
        "partition a GPU into MIG devices; 0 disables MIG",
    )
    add_gpu(partition)
    partition.add_argument("mig_devices", type=int, help="0 to 7")
    add_gpu(
        add(
            "reset-counter", lambda gpus, given: gpus.reset_energy_counter(given.gpu), "reset an energy counter to zero"
        )
    )
    for name, act, summary in (
        ("stop-driver", Machine.stop_driver, "unload the driver; programs must initialize NVML again"),
        (
            "restart-driver",
            Machine.restart_driver,
            "unload and load the driver: counters from zero, default limits and clocks",
        ),
    ):
        add(name, _with_stale_code(act), summary).add_argument(
            "--stale-code",
            type=int,
            default=NVML_ERROR_UNINITIALIZED,
            metavar="CODE",
            help="NVML code that calls of open programs return (default: 1, uninitialized)",
        )
    add("start-driver", lambda gpus, _: gpus.start_driver(), "load the driver if it is stopped")
    limit = add(
        "set-power-limit",
        lambda gpus, given: gpus.set_power_limit_as_another_actor(given.gpu, given.watts),
        "change a limit without NVML, as another administrator would",
    )
    add_gpu(limit)
    limit.add_argument("watts", type=float)
    thermal = add("set-thermal-model", _set_thermal_model, "let temperature follow power, and power temperature")
    thermal.add_argument("--off", action="store_true", help="remove the model")
    for field in fields(ThermalModel):
        thermal.add_argument(f"--{field.name.replace('_', '-')}", type=float, default=field.default, metavar="X")
    fault = add("fault", _fault, "make NVML calls fail or hang; prints the ticket of the fault")
    fault.add_argument("function", help="name of the C function, or '*'")
    fault.add_argument("--code", type=int, default=NVML_SUCCESS, help="NVML code that it returns")
    fault.add_argument("--gpu", type=_gpu, help="only calls on this GPU")
    fault.add_argument("--first-call", type=int, default=1, metavar="N", help="first matching call that fails")
    fault.add_argument("--count", type=int, metavar="N", help="number of calls that fail (default: all from there on)")
    fault.add_argument(
        "--delay-seconds", type=float, default=0.0, metavar="S", help="real time before the call returns"
    )
    clear = add("clear-faults", lambda gpus, given: gpus.clear_fault(given.ticket or 0), "end one fault, or all")
    clear.add_argument("--ticket", type=int, help="ticket of the fault to end")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Execute an action; return 1 if it fails, 2 if the arguments are invalid."""
    parsed = _parser().parse_args(arguments)
    try:
        with Machine(parsed.path) as machine:
            answer = parsed.act(machine, parsed)
    except WattloopError as error:
        sys.stderr.write(f"nvml_simulator: {error}\n")
        return 2 if isinstance(error, UsageError) else 1
    if answer is not None:
        sys.stdout.write(json.dumps(answer) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
