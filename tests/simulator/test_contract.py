"""Each supported function, compared with NVML's documentation."""

import ctypes
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pynvml
import pytest

import nvml_simulator
from nvml_simulator.nvml_contract import (
    ALLOWED_UNINITIALIZED,
    FUNCTIONS,
    INVALID_ARGUMENT,
    NOT_SUPPORTED,
    SUCCESS,
    UNINITIALIZED,
    Device,
    FunctionCaller,
    InvalidCall,
    MigDeviceHandle,
    invalid_calls,
)
from support.agents.simulated_programs import MakeMachine, StartNvml

LIFECYCLE = ("nvmlInit_v2", "nvmlInitWithFlags", "nvmlShutdown", "nvmlErrorString")
CALLS = tuple(name for name in FUNCTIONS if name not in LIFECYCLE)
CHANGES = tuple(name for name, function in FUNCTIONS.items() if function.changes)


@pytest.fixture
def start_caller(start_nvml: StartNvml) -> Callable[[], FunctionCaller]:
    def start() -> FunctionCaller:
        start_nvml()
        caller = FunctionCaller(nvml_simulator.load())
        caller.read_properties(os.getpid())
        return caller

    return start


def test_the_table_has_every_function_of_the_library(make_machine: MakeMachine) -> None:
    assert set(make_machine().functions()) == set(FUNCTIONS)


def test_the_library_exports_exactly_the_listed_functions() -> None:
    exported = subprocess.run(
        ["nm", "-D", "--defined-only", str(nvml_simulator.build_library())], capture_output=True, text=True, check=True
    ).stdout
    assert set(re.findall(r"\bnvml\w+", exported)) == set(FUNCTIONS)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("model", ["A100", "H200"])
def test_a_valid_call_succeeds(
    model: str, name: str, make_machine: MakeMachine, start_caller: Callable[[], FunctionCaller]
) -> None:
    make_machine(model=model, count=2).partition(0, 7 if FUNCTIONS[name].needs_mig else 0)
    assert start_caller().call(name) == SUCCESS


@pytest.mark.parametrize("case", list(invalid_calls()), ids=str)
def test_an_invalid_call_fails_as_documented(
    case: InvalidCall, make_machine: MakeMachine, start_caller: Callable[[], FunctionCaller]
) -> None:
    machine = make_machine(model="H200", count=2)
    machine.partition(0, 2 if FUNCTIONS[case.function].needs_mig else 0)
    assert start_caller().call(case.function, case.position, case.make) == case.code


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in ALLOWED_UNINITIALIZED])
def test_no_call_succeeds_before_nvml_is_initialized(name: str, make_machine: MakeMachine) -> None:
    make_machine()
    assert FunctionCaller(nvml_simulator.load()).call(name) == UNINITIALIZED


@pytest.mark.parametrize(
    "name", [name for name in CALLS if isinstance((*FUNCTIONS[name].parameters, 0)[0], Device | MigDeviceHandle)]
)
def test_a_foreign_handle_is_rejected_without_a_read(
    name: str, make_machine: MakeMachine, start_caller: Callable[[], FunctionCaller]
) -> None:
    make_machine()
    assert start_caller().call(name, make=lambda: ctypes.c_void_p(0x10)) == INVALID_ARGUMENT


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_without_permission_fails_and_changes_nothing(
    name: str, make_machine: MakeMachine, start_caller: Callable[[], FunctionCaller]
) -> None:
    machine = make_machine(permission="nobody", count=1)
    before = machine.describe().gpus
    assert start_caller().call(name) == pynvml.NVML_ERROR_NO_PERMISSION
    assert machine.describe().gpus == before


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("V100", "nvmlDeviceGetMigMode"),
        ("A40", "nvmlDeviceGetMigMode"),
        ("A40", "nvmlDeviceGetMigDeviceHandleByIndex"),
        ("V100", "nvmlDeviceSetMemoryLockedClocks"),
        ("V100", "nvmlDeviceResetMemoryLockedClocks"),
    ],
)
def test_a_missing_feature_of_a_model_is_not_supported(
    model: str, name: str, make_machine: MakeMachine, start_caller: Callable[[], FunctionCaller]
) -> None:
    make_machine(model=model)
    assert start_caller().call(name) == NOT_SUPPORTED


def test_a_handle_beyond_the_gpus_of_another_machine_is_rejected(
    make_machine: MakeMachine, start_nvml: StartNvml
) -> None:
    make_machine(count=2)
    nvml = start_nvml()
    second = nvml.nvmlDeviceGetHandleByIndex(1)
    nvml.nvmlShutdown()
    make_machine(count=1)
    nvml.nvmlInit()
    with pytest.raises(nvml.NVMLError_InvalidArgument):
        nvml.nvmlDeviceGetName(second)


def test_initializations_are_counted(make_machine: MakeMachine, start_nvml: StartNvml) -> None:
    make_machine()
    nvml = start_nvml()
    start_nvml()
    nvml.nvmlShutdown()
    assert nvml.nvmlDeviceGetCount() == 4
    nvml.nvmlShutdown()
    with pytest.raises(nvml.NVMLError_Uninitialized):
        nvml.nvmlDeviceGetCount()


def test_init_with_an_unknown_flag_fails(make_machine: MakeMachine) -> None:
    make_machine()
    assert nvml_simulator.load().nvmlInitWithFlags(ctypes.c_uint(1 << 20)) == INVALID_ARGUMENT


def test_pynvml_does_not_find_an_unsupported_function(make_machine: MakeMachine, start_nvml: StartNvml) -> None:
    make_machine()
    nvml = start_nvml()
    with pytest.raises(nvml.NVMLError_FunctionNotFound):
        nvml.nvmlDeviceGetFanSpeed(nvml.nvmlDeviceGetHandleByIndex(0))


def test_error_codes_have_the_texts_that_pynvml_expects(make_machine: MakeMachine, start_nvml: StartNvml) -> None:
    make_machine()
    nvml = start_nvml()
    assert nvml.nvmlErrorString(nvml.NVML_ERROR_GPU_IS_LOST) == "GPU is lost"
    assert nvml.nvmlErrorString(nvml.NVML_ERROR_UNKNOWN) == "Unknown Error"
    assert nvml.nvmlErrorString(-1) == "Unknown Error"


def test_a_real_nvml_matches_the_table() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        pytest.skip("no NVIDIA driver on this machine: the table was last compared with a real H200 manually")
    result = subprocess.run(
        [sys.executable, "-m", "nvml_simulator.nvml_contract"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stdout == "no difference\n", result.stderr


def test_the_documentation_lists_every_function() -> None:
    page = (Path(__file__).parents[2] / "docs" / "internals" / "simulator.md").read_text()
    listed = page[page.index("<!-- functions -->") : page.index("<!-- end -->")]
    assert re.findall(r"`(nvml\w+)`", listed) == list(FUNCTIONS)
