"""Finds the packages of the four source roots; everything that can be said declaratively is in pyproject.toml.

`packages.find` takes one set of patterns for several roots but no prefix per root, and the root `operator/` must never
itself be importable (it would shadow the standard library), so the roots are walked here.
"""

from setuptools import find_packages, setup

ROOTS = ("client", "operator", "agent", "planner")

setup(packages=sorted(package for root in ROOTS for package in find_packages(root)))
