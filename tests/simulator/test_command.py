"""`python -m nvml_simulator` creates GPUs for a shell, and for programs that do not import the package."""

import json
import subprocess
import sys
from pathlib import Path

import nvml_simulator


def test_a_shell_evaluates_what_is_printed_even_if_the_path_has_spaces_and_quotes(tmp_path: Path) -> None:
    state = tmp_path / "it's my $(state)"
    script = f'eval "$("$1" -P -m nvml_simulator "$2" --count 2)"; exec "$1" -c "{SHOW}"'
    command = ["sh", "-euc", script, "sh", sys.executable, str(state)]
    shown = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path).stdout
    assert json.loads(shown) == [2, str(state)]
    assert [path.name for path in tmp_path.glob("it's*")] == [state.name]


SHOW = (
    "import json, os, nvml_simulator, pynvml; pynvml.nvmlInit(); "
    "print(json.dumps([pynvml.nvmlDeviceGetCount(), os.environ['WATTLOOP_SIMULATED_GPUS_STATE']]))"
)


def test_a_program_reads_the_same_environment_as_json(tmp_path: Path) -> None:
    state = tmp_path / "gpus"
    command = [sys.executable, "-P", "-m", "nvml_simulator", str(state), "--format", "json"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert json.loads(printed) == nvml_simulator.environment(state)
