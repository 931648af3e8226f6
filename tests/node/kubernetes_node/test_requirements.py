"""On a machine that cannot be a node, one line names the reason and the remedy."""

import os
import shutil

import pytest

from support.kubernetes_node import requirements


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)


def test_without_root_the_message_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert requirements.missing_requirement() == "a node needs root: run it as root, on a machine that you may change"


def test_missing_packages_are_named_with_the_command(root: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda program: None if program in {"containerd", "ctr", "runc"} else program)
    assert (missing := requirements.missing_requirement()) is not None
    assert "apt-get install containerd runc" in missing
    assert "\n" not in missing
