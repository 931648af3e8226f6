"""Policies on disk: they survive restarts, are replaced atomically, and close the node if unknown."""

import json
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattloop.wire.node_energy import GpuBounds, NodeAnswer
from wattloop_agent.monitor.policy_limits import BoundsFile
from wattloop_agent.refusals import Reason, RequestError

FLEET = GpuBounds("fleet", power_limit_watts=(150.0, 350.0))
TEAM = GpuBounds("team", products=("NVIDIA H200",), namespaces=("vision",), memory_clock_megahertz=(0.0, 2500.0))


def test_a_node_without_an_answer_has_no_policies(tmp_path: Path) -> None:
    bounds = BoundsFile(tmp_path / "monitor")
    assert bounds.limits().bounds == ()
    assert bounds.problem == ""


def test_the_last_policies_apply_and_survive_a_restart(tmp_path: Path) -> None:
    bounds = BoundsFile(tmp_path / "monitor")
    bounds.replace((FLEET,))
    bounds.replace((FLEET, TEAM))
    assert bounds.limits().bounds == (FLEET, TEAM)
    assert BoundsFile(tmp_path / "monitor").limits().bounds == (FLEET, TEAM)
    bounds.replace(())
    assert BoundsFile(tmp_path / "monitor").limits().bounds == ()
    assert [path.name for path in (tmp_path / "monitor").iterdir()] == ["bounds.json"]


def test_unchanged_policies_are_not_written_again(tmp_path: Path) -> None:
    bounds = BoundsFile(tmp_path)
    bounds.replace((FLEET,))
    before = (tmp_path / "bounds.json").stat().st_ino
    bounds.replace((FLEET,))
    BoundsFile(tmp_path).replace((FLEET,))
    assert (tmp_path / "bounds.json").stat().st_ino == before


def test_a_file_written_by_hand_is_read(tmp_path: Path) -> None:
    (tmp_path / "bounds.json").write_text('{"bounds": [{"policy": "lab", "power_limit_watts": [150, 300]}]}')
    assert BoundsFile(tmp_path).limits().bounds == (GpuBounds("lab", power_limit_watts=(150.0, 300.0)),)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"bounds": null}',
        b'{"bounds": [{"policy": "a", "power_limit_watts": [300, 150]}]}',
        b'{"bounds": [{"policy": "a", "humidity_percent": [0, 50]}]}',
        b'{"bounds": [{"policy": "a"}, {"policy": "a"}]}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_a_damaged_file_closes_the_node_until_the_operator_answers_again(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "bounds.json").write_bytes(content)
    bounds = BoundsFile(tmp_path)
    with pytest.raises(RequestError) as refused:
        bounds.limits()
    assert refused.value.reason is Reason.UNAVAILABLE
    assert str(tmp_path / "bounds.json") in refused.value.message
    assert bounds.problem
    bounds.replace((FLEET,))
    assert (bounds.limits().bounds, bounds.problem) == ((FLEET,), "")
    assert BoundsFile(tmp_path).limits().bounds == (FLEET,)


def test_an_unreadable_file_closes_the_node(tmp_path: Path) -> None:
    (tmp_path / "bounds.json").mkdir()
    with pytest.raises(RequestError, match="Unavailable"):
        BoundsFile(tmp_path).limits()


def test_if_the_disk_fails_the_policies_apply_and_the_failure_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds = BoundsFile(tmp_path)
    bounds.replace((FLEET,))
    with monkeypatch.context() as full:

        def no_space(*_: object) -> None:
            raise OSError(28, "No space left on device")

        full.setattr(os, "fsync", no_space)
        bounds.replace((TEAM,))
        assert bounds.limits().bounds == (TEAM,)
        assert "not stored for a restart" in bounds.problem
        assert BoundsFile(tmp_path).limits().bounds in {(FLEET,), (TEAM,)}, "whole, whichever it is"
    bounds.replace((TEAM,))
    assert (bounds.problem, BoundsFile(tmp_path).limits().bounds) == ("", (TEAM,))


@given(st.binary(max_size=200))
def test_any_content_of_the_file_is_either_policies_or_closes_the_node(content: bytes) -> None:

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "bounds.json").write_bytes(content)
        bounds = BoundsFile(Path(folder))
        if bounds.problem:
            with pytest.raises(RequestError):
                bounds.limits()
        else:
            assert bounds.limits().bounds == NodeAnswer.from_json(json.loads(content)).bounds
