"""Finds the packages of the six source roots and builds the three extension modules; the rest is in pyproject.toml.

`packages.find` takes one set of patterns for several roots but no prefix per root, and the root `operator/` must never
itself be importable (it would shadow the standard library), so the roots are walked here.

The extensions keep to Python's stable ABI, so one wheel serves every Python from 3.11 on.

An editable installation adds the source roots to the path. By default, setuptools would install an import hook that
comes after the path: a folder named `wattloop` beside a training script, such as a clone, would hide the package.
setuptools writes such a path itself for a single source root alone. Its mode `strict` is a path to links of all files,
which hide each module that is added until the next installation. So the private method `_select_strategy` is replaced.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from setuptools import Extension, find_packages, setup
from setuptools.command.editable_wheel import editable_wheel

ROOTS = ("client", "operator", "agent", "planner", "research", "simulator")
STABLE_ABI = "0x030B0000"


def extension(package: str, name: str, sources: list[str], headers: list[str]) -> Extension:
    """A module of a package of wattloop_planner from C files in the package's folder `native`."""
    shared, native = "planner/wattloop_planner/native", f"planner/wattloop_planner/{package}/native"
    return Extension(
        f"wattloop_planner.{package}.{name}",
        sources=[f"{native}/{source}" for source in sources],
        depends=[f"{shared}/buffers.h", *(f"{native}/{header}" for header in headers)],
        include_dirs=[shared],
        define_macros=[("Py_LIMITED_API", STABLE_ABI)],
        extra_compile_args=["-std=c11", "-O3", "-fvisibility=hidden"],
        libraries=["m"],
        py_limited_api=True,
    )


class SourceRoots:
    """How an editable installation finds the packages: a file .pth with the source roots."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> "SourceRoots":
        return self

    def __exit__(self, *_: object) -> None:
        """Have nothing to clean up."""

    def __call__(self, wheel: Any, files: list[str], mapping: Mapping[str, str]) -> None:  # noqa: ARG002 - setuptools'
        """Write the file into the wheel."""
        roots = Path(__file__).resolve().parent
        lines = "".join(f"{roots / root}\n" for root in ROOTS)
        wheel.writestr(f"__editable__.{self.name}.pth", os.fsencode(lines))


class EditableWheel(editable_wheel):
    """The wheel of an editable installation."""

    def _select_strategy(self, name: str, tag: str, build_lib: str) -> SourceRoots:  # noqa: ARG002 - setuptools'
        return SourceRoots(name)


setup(
    cmdclass={"editable_wheel": EditableWheel},
    packages=sorted(package for root in ROOTS for package in find_packages(root)),
    ext_modules=[
        extension(
            "bandit",
            "_cost_model",
            ["cost_model_module.c", "conditioning.c", "trial_value.c"],
            ["conditioning.h", "normal.h", "trial_value.h"],
        ),
        extension(
            "frequency",
            "_parametric_flow",
            ["parametric_flow_module.c", "parametric_flow.c", "augmentation.c", "search.c", "network.c"],
            ["parametric_flow.h", "network.h"],
        ),
        extension(
            "frequency",
            "_rounding",
            ["rounding_module.c", "rounding.c", "pipeline.c"],
            ["rounding.h", "pipeline.h"],
        ),
    ],
    # C sources are for building, not for the wheel.
    exclude_package_data={
        "wattloop_planner": ["native/*"],
        "wattloop_planner.bandit": ["native/*"],
        "wattloop_planner.frequency": ["native/*"],
    },
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
