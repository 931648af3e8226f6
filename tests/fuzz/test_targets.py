"""Each fuzz target passes its seeds and the same mutations of them, and finds a planted defect."""

import json
import math
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from itertools import islice
from pathlib import Path

import pytest
from fastapi import Request
from fastapi.routing import APIRoute

from support.fuzzing.campaign import TARGETS, main, open_target
from support.fuzzing.mutation import mutations
from support.fuzzing.random_steps import VERBS, random_step
from support.fuzzing.rank_steps import parse_steps
from support.fuzzing.reporting import ReportingTarget
from support.fuzzing.target import DefectError, Target
from support.test_sets.parameters import exhaustive_after
from wattloop.pipeline.plan_messages import MODES, RankReport
from wattloop_agent.monitor import socket_server
from wattloop_operator.api.checks import documents
from wattloop_operator.local.report_server import LocalTokens
from wattloop_operator.reconcile.pipeline import registrations
from wattloop_operator.reconcile.pipeline.pipeline_state import PipelineState
from wattloop_operator.reconcile.pipeline.reports import with_report
from wattloop_operator.reporting import pipeline_commits, request_handling

SEED = 20261122
# The slower a target is, the fewer: a sequence of messages to the plan service, and a template's check, take a tenth of
# a second. `make fuzz` goes on for as long as wanted.
MUTATIONS = {"plan-service": 20, "templates": 60, "frequency-plans": 60, "reporting": 100, "manifests": 100}
FEW_SEEDS, FEW_MUTATIONS = 40, {"plan-service": 5, "templates": 10, "frequency-plans": 10}


@pytest.fixture
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    before = dict(os.environ)
    opened = open_target(request.param)
    yield opened
    opened.close()
    os.environ.clear()
    os.environ.update(before)


@pytest.mark.parametrize(("target", "name"), [(name, name) for name in TARGETS], indirect=["target"])
def test_a_target_passes_seeds_and_some_mutations(target: Target, name: str) -> None:
    seeds = target.seeds()
    assert len(seeds) > 10
    # Of the 188 manifests every fifth: tests/operator/api checks them all.
    for data in seeds[:: math.ceil(len(seeds) / FEW_SEEDS)]:
        target.check(data)
    for data in islice(mutations(target, SEED), len(seeds), len(seeds) + FEW_MUTATIONS.get(name, 20)):
        target.check(data)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("target", "name"), [(name, name) for name in TARGETS], indirect=["target"])
def test_a_target_passes_all_seeds_and_many_mutations(target: Target, name: str) -> None:
    for data in islice(mutations(target, SEED), len(target.seeds()) + MUTATIONS.get(name, 300)):
        target.check(data)


def test_the_seed_determines_the_mutations() -> None:
    target = open_target("manifests")
    some = [list(islice(mutations(target, seed), 200)) for seed in (1, 1, 2)]
    assert some[0] == some[1] != some[2]
    assert len(set(some[0])) > 150


def test_steps_are_whole_lines_that_the_target_reads() -> None:
    rng = random.Random(SEED)
    steps = [random_step(rng) for _ in range(500)]
    read = [step for each in steps for step in parse_steps(each.rstrip(b"\n"))]
    assert len(read) == len(steps)
    assert {step.verb for step in read} == set(VERBS)
    assert all(each.count(b"\n") == 1 for each in steps)


def failing_input(target: Target, max_inputs: int = 2000) -> bytes:
    for data in islice(mutations(target, SEED), max_inputs):
        try:
            target.check(data)
        except Exception:  # noqa: BLE001 - a planted defect may raise anything
            return data
    raise AssertionError(f"{max_inputs} inputs did not find the planted defect")


@pytest.mark.parametrize("target", ["socket"], indirect=True)
def test_an_exception_in_the_agents_monitor_is_found(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as planted:
        planted.setattr(socket_server, "decoded_request", json.loads)
        data = failing_input(target)
    target.check(data)


@pytest.mark.parametrize("target", ["socket"], indirect=True)
def test_a_connection_that_the_agent_does_not_close_is_found(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    monkeypatch.setattr("support.fuzzing.agent_socket.MAX_ANSWER_SECONDS", 1.0)

    def leaking(line: bytes) -> dict[str, object]:
        opened.append(Path(os.devnull).open())  # noqa: SIM115 - that is the defect
        return {"verb": "list"}

    with monkeypatch.context() as planted:
        planted.setattr(socket_server, "decoded_request", leaking)
        with pytest.raises(DefectError, match="descriptors stay open"):
            target.check(target.seeds()[0])
    for each in opened:
        each.close()


@pytest.mark.parametrize("target", ["reporting"], indirect=True)
def test_the_seeds_of_the_reporting_api_reach_every_route(target: Target) -> None:
    assert isinstance(target, ReportingTarget)
    for data in target.seeds():
        target.check(data)
    routes = {route.path for route in target.app.routes if isinstance(route, APIRoute)}
    assert target.accepted_routes == routes
    assert target.modes == set(MODES)


async def unchecked_body(request: Request, *_: object) -> object:
    return json.loads(await request.body())


def unordered_report(state: PipelineState, rank: int, report: RankReport, now: datetime) -> PipelineState:
    ranks = {number: replace(each, report=None) for number, each in state.ranks.items()}
    return with_report(replace(state, ranks=ranks), rank, report, now)


@pytest.mark.parametrize("target", ["reporting"], indirect=True)
@pytest.mark.parametrize(
    ("owner", "name", "defect"),
    exhaustive_after(
        [
            (LocalTokens, "is_authorized", lambda *_: True),
            (registrations, "check_microbatches", lambda _: None),
            (registrations.Registrar, "_conflict", lambda *_: None),
            (pipeline_commits, "with_report", unordered_report),
            (request_handling, "json_body", unchecked_body),
        ],
        usual=2,
    ),
    ids=["another job's pipeline", "missing instruction", "contradiction", "late report", "a body without a bound"],
)
def test_a_missing_check_of_the_reporting_api_is_found(
    target: Target, monkeypatch: pytest.MonkeyPatch, owner: object, name: str, defect: object
) -> None:
    with monkeypatch.context() as planted:
        planted.setattr(owner, name, defect)
        data = failing_input(target)
    target.check(data)


@pytest.mark.parametrize("target", ["manifests"], indirect=True)
def test_a_number_that_python_cannot_parse_is_found(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as planted:
        planted.setattr(documents, "MAX_NUMBER_CHARACTERS", 10**9)
        planted.setattr(documents, "sys", None)
        data = failing_input(target)
    target.check(data)


PLANTED = """
import sys
from support.fuzzing import campaign
from wattloop_operator.api import manifests
def broken(source, text):
    if "&" in text:
        raise RuntimeError("planted")
    return iter(())
manifests.read_documents = broken
sys.exit(campaign.main(sys.argv[1:]))
"""


def test_a_defect_gives_exit_code_1_and_an_input_to_replay(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    options = ["--seconds", "60", "--engine", "mutations", "--output", str(tmp_path)]
    (tmp_path / "manifests").mkdir()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", PLANTED, "manifests", *options, "--in-this-process"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 1
    assert "RuntimeError: planted" in done.stderr
    (crash,) = (tmp_path / "manifests").glob("crash-*")
    replay = ["manifests", "--replay", str(crash)]
    again = subprocess.run(
        [sys.executable, "-c", PLANTED, *replay], capture_output=True, text=True, check=False, env=environment
    )
    assert "RuntimeError: planted" in again.stderr
    assert main(replay) == 0, "without the defect the input passes"
    assert "no defect" in capfd.readouterr().err


def test_the_command_runs_each_target_in_a_process_and_names_the_failing_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    options = ["manifests", "--engine", "mutations", "--seconds", "1", "--output", str(tmp_path)]
    assert main(options) == 0
    assert "no defect" in capfd.readouterr().err
    # Python imports this module at its start, so the defect is planted in the target's process.
    (tmp_path / "sitecustomize.py").write_text(
        "import support.fuzzing.mutation as m\nfrom pathlib import Path\n"
        "import support.fuzzing.manifests as t\n"
        "def check(self, data):\n    raise RuntimeError('planted')\n"
        "t.ManifestTarget.check = check\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *(path for path in sys.path if path)]))
    assert main(options) == 1
    output = capfd.readouterr().err
    (crash,) = (tmp_path / "manifests").glob("crash-*")
    assert f"make fuzz TARGETS=manifests INPUT={crash}" in output


def test_invalid_arguments_are_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["sockets"], ["--seconds", "0"], ["--replay", "x"]):
        with pytest.raises(SystemExit) as leaving:
            main(arguments)
        assert leaving.value.code == 2
    assert f"expected targets among {', '.join(TARGETS)}" in capsys.readouterr().err
