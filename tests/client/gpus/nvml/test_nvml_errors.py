"""Errors of NVML, and of a machine without NVML."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import wattloop
from nvml_simulator import STATE_VARIABLE, Machine, create
from wattloop.gpus.nvml import (
    Gpu,
    GpuLost,
    GpuNotFound,
    InvalidArgument,
    LibraryMissing,
    NoPermission,
    NotSupported,
    NvmlError,
    Session,
    pynvml_binding,
)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (1, NvmlError),
        (2, InvalidArgument),
        (3, NotSupported),
        (4, NoPermission),
        (6, GpuNotFound),
        (9, LibraryMissing),
        (12, LibraryMissing),
        (13, NotSupported),
        (15, GpuLost),
        (16, GpuLost),
        (18, LibraryMissing),
        (28, GpuNotFound),
        (999, NvmlError),
    ],
)
def test_an_error_has_the_class_of_its_code_and_names_gpu_call_and_next_step(
    code: int, kind: type[NvmlError], machine: Machine, session: Session
) -> None:
    gpu = session.gpus()[1]
    machine.inject_fault("nvmlDeviceGetPowerUsage", code=code, gpu=1)
    with pytest.raises(NvmlError) as raised:
        gpu.power_watts()
    error = raised.value
    assert type(error) is kind
    assert (error.gpu, error.call, error.code) == (gpu.uuid, "nvmlDeviceGetPowerUsage", code)
    assert str(error).startswith(f"GPU {gpu.uuid}: nvmlDeviceGetPowerUsage: ")
    assert str(error).endswith(f"(NVML code {code}); {kind.next_step}")


@pytest.mark.parametrize(
    "change",
    [
        lambda gpu: gpu.set_power_limit_watts(300.0),
        lambda gpu: gpu.lock_graphics_clocks(900, 900),
        Gpu.reset_graphics_clocks,
        lambda gpu: gpu.lock_memory_clocks(3201, 3201),
        Gpu.reset_memory_clocks,
    ],
)
def test_a_change_without_permission_names_the_next_step(
    change: object, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = create(machine.path.with_name("locked"), permission="nobody", count=1)
    monkeypatch.setenv(STATE_VARIABLE, str(path))
    with Session() as session, pytest.raises(NoPermission, match=r"CAP_SYS_ADMIN.*as the agent of a node has"):
        change(session.gpus()[0])  # type: ignore[operator]


def test_an_unknown_uuid_is_not_found(session: Session) -> None:
    with pytest.raises(GpuNotFound, match=r"GPU GPU-none: .*nvidia-smi -L"):
        session.gpu("GPU-none")


def test_a_session_can_be_closed_twice_and_opened_again(machine: Machine) -> None:
    session = Session()
    session.close()
    for _ in range(2):
        with session.open():
            assert len(session.gpus()) == 2
        session.close()
    with pytest.raises(NvmlError, match="Uninitialized"):
        session.gpus()


def test_sessions_may_overlap(machine: Machine) -> None:
    with Session() as outer:
        with Session() as inner:
            assert inner.gpus() == outer.gpus()
        assert len(outer.gpus()) == 2


def test_a_missing_driver_is_an_error_that_names_what_to_install(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(STATE_VARIABLE)
    with pytest.raises(LibraryMissing, match=r"Driver Not Loaded .*install the NVIDIA driver"):
        Session().open()


def test_a_missing_library_is_an_error_that_names_it() -> None:
    script = "from wattloop.gpus.nvml import Session; Session().open()"
    environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    result = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    if result.returncode == 0:
        pytest.skip("this machine has a real NVML")
    assert "LibraryMissing: nvmlInit: NVML Shared Library Not Found" in result.stderr


def test_a_missing_binding_is_an_error_that_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    pynvml_binding.binding.cache_clear()
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(LibraryMissing, match=r"the Python binding is not installed.*\[nvml\]"):
        Session().open()
    pynvml_binding.binding.cache_clear()


def test_the_module_imports_without_pynvml() -> None:
    root = Path(wattloop.__file__).parents[1]
    script = f"import sys; sys.path.insert(0, {str(root)!r}); import wattloop.gpus.nvml; print('pynvml' in sys.modules)"
    result = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"


def test_no_other_module_imports_pynvml() -> None:
    root = Path(wattloop.__file__).parents[2]
    packages = [root / folder for folder in ("client", "operator", "agent", "planner", "research", "simulator")]
    importers = {
        file.relative_to(root).as_posix()
        for package in packages
        for file in package.rglob("*.py")
        if any(line.strip().startswith(("import pynvml", "from pynvml")) for line in file.read_text().splitlines())
    }
    assert importers == {"client/wattloop/gpus/nvml/pynvml_binding.py"}
