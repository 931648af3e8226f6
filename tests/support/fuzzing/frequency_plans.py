"""Fuzz target: FrequencyPlans of users, from the manifest to the directives of the ranks that are to run them."""

import base64
import gzip
import json
import logging
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from support.control_plane.job_manifest import job_manifest
from support.fuzzing.logs import DefectLog
from support.fuzzing.target import DefectError
from support.pipelines.simulated_ranks import NEW_STATE, SimulatedOperator, exchange, ranks_of, run_until_planned
from support.recurrence_objects import recurrence_object
from wattloop.errors import InputError
from wattloop.pipeline.plan_messages import PLAN, Directive
from wattloop_operator.api.checks.documents import DocumentError, read_documents
from wattloop_operator.api.frequency_plan import FrequencyPlan, decode_archive
from wattloop_operator.api.manifests import check_text
from wattloop_operator.api.meta import OwnerReference
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.pipeline.job_plan import job_plan
from wattloop_operator.reconcile.pipeline.pipeline_state import JobPlan
from wattloop_operator.reconcile.pipeline.plan_object import plan_object
from wattloop_operator.reconcile.pipeline.plan_status import applied_plan, plan_status
from wattloop_operator.reconcile.pipeline.profile import common_clocks
from wattloop_planner.frequency.files.archive import read_archive, write_archive

TESTS = Path(__file__).parents[2]
# An input that begins with it is the JSON of an archive, and otherwise a manifest.
ARCHIVE = b"archive "
OWNER = OwnerReference(api_version="wattloop.dev/v1alpha1", kind="RecurringTrainingJob", name="gpt", uid="0c3b2d9e")
JOB = RecurringTrainingJob.from_wire(job_manifest(power={"mode": "None", "frequencyPlan": {"name": "mine"}}))
MAX_LINE_CHARACTERS = 4096
ROUNDS = 8
TEXTS_PER_CHECK = 4


class FrequencyPlanTarget:
    """A user's FrequencyPlan for two ranks; an input is its manifest in YAML, or the JSON of its archive.

    Checks: no exception; an archive that is read is written and read unchanged; a plan that `wattloop validate` or the
    operator accepts leads to a directive for each rank whose clocks its GPUs have, or to free clocks with a printable
    reason; its status can be written; the operator logs no error.
    """

    tokens = (
        ARCHIVE, b"&a ", b"*a", b"<<: *a", b"<<: [*a, *a]", b"- ", b": ", b"---\n", b"stages:\n", b"operations:\n",
        b"instruction: forward", b"megahertz: 900", b"knobs: {sm: '8'}", b"archive: H4sI", b"timeSeconds: '1e308'",
        b"energyJoules: '0'", b"gpuProduct: NVIDIA A40", b'"stages": 2', b'"microbatches": ', b'"settings": [',
        b'"instructions": [', b'"points": [', b'"knobs": ["sm"]', b'"max_clocks": [', b'"blocking_power_watts": ',
        b'"gpu_product": ', b"forward:0:0", b"[[900]]", b"NaN", b"Infinity", b"1e999", b"1e308", b"-0.0", b"5e-324",
        b"true", b"null", b"9" * 30, b"9" * 5000, b"[" * 2000, b'"\\ud800"', b'"\\u0000"', b"\xff", b"\xc2\xb2"
    )  # fmt: skip

    def __init__(self) -> None:
        self._log = DefectLog("wattloop_operator", level=logging.ERROR)
        self._log.__enter__()
        self._recurrence = TrainingAttempt.of(TrainingRecurrence.from_wire(recurrence_object("digits-0")), None)

    def seeds(self) -> list[bytes]:
        """The tests' manifests of plans, plans for the ranks of the target, and their archives."""
        planned = SimulatedOperator()
        run_until_planned(planned, ranks_of(2))
        made = plan_object(planned.state, OWNER)
        assert made.spec.archive is not None
        document: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(made.spec.archive)))
        few = document | {"points": document["points"][:2]}
        knobs = few | {"knobs": ["sm"], "settings": [[*setting, "8"] for setting in few["settings"]]}
        rows = [[text.split(":")[0] for text in row] for row in document["instructions"]]
        stages = [{"operations": [{"instruction": name, "megahertz": 900} for name in row]} for row in rows]
        listed = {"apiVersion": "wattloop.dev/v1alpha1", "kind": "FrequencyPlan", "metadata": {"name": "mine"}}
        aliased = (
            f"{json.dumps(listed)[1:-1]}".replace('"', "")
            .replace(", kind", "\nkind")
            .replace(", metadata", "\nmetadata")
            + "\nspec:\n  timeSeconds: '1'\n  stages:\n  - &s\n    operations:\n    - &o {instruction: forward, "
            "megahertz: 900}\n    - <<: *o\n    - {<<: *o, instruction: backward}\n    - *o\n  - <<: *s\n"
        )
        manifests = [path.read_bytes() for path in sorted((TESTS / "manifests").glob("*/*plan*.yaml"))]
        return [
            *(each for each in manifests if b"kind: FrequencyPlan" in each and len(each) < 16_384),
            json.dumps(made.to_wire()).encode(),
            json.dumps(listed | {"spec": {"stages": stages}}).encode(),
            aliased.encode(),
            *(ARCHIVE + json.dumps(each).encode() for each in (document, few, knobs)),
        ]

    def check(self, data: bytes) -> None:
        self._log.clear()
        for plan in _plans(data):
            self._check_plan(plan)
        self._log.check()

    def close(self) -> None:
        self._log.__exit__(None, None, None)

    def _check_plan(self, plan: FrequencyPlan) -> None:
        given = job_plan(JOB, self._recurrence, plan).given
        operator = SimulatedOperator(replace(NEW_STATE, job_plan=JobPlan(given=given)))
        ranks = ranks_of(2)
        for _ in range(ROUNDS):
            exchange(operator, ranks)
            for rank in ranks:
                _check_directive(operator, rank.directive, len(rank.registration.instructions))
        state = operator.state
        if not state.directive.reason.isprintable():
            raise DefectError(f"a reason that is not printable: {state.directive.reason!r:.200}")
        plan_status(state, plan, ended=False, now=operator.now).to_wire()
        applied_plan(state, "mine").to_wire()
        try:
            plan_object(state, OWNER)
        except InputError as error:
            _check_line(str(error))


def _plans(data: bytes) -> Iterator[FrequencyPlan]:
    """The FrequencyPlans of an input, as the operator and `wattloop validate` read them."""
    if data.startswith(ARCHIVE):
        archive = base64.b64encode(gzip.compress(data.removeprefix(ARCHIVE), 1, mtime=0)).decode()
        _check_archive(archive)
        yield FrequencyPlan.from_wire({"metadata": {"name": "mine"}, "spec": {"archive": archive}})
        return
    text = data.decode("utf-8", "replace")
    if zlib.crc32(data) % TEXTS_PER_CHECK == 0:
        for problem in check_text("plan.yaml", text).problems:
            _check_line(str(problem))
    try:
        documents = list(read_documents("plan.yaml", text))
    except DocumentError as error:
        _check_line(str(error.problem))
        return
    for each in documents:
        if isinstance(each.value, dict) and each.value.get("kind") == "FrequencyPlan":
            try:
                yield FrequencyPlan.from_wire(each.value)
            except ValidationError:
                continue


def _check_archive(text: str) -> None:
    try:
        archive = decode_archive(text)
    except InputError as error:
        _check_line(str(error))
        return
    if read_archive(write_archive(archive)) != archive:
        raise DefectError("an archive that is not written and read unchanged")


def _check_directive(operator: SimulatedOperator, directive: Directive, instructions: int) -> None:
    Directive.from_json(json.loads(json.dumps(directive.to_json(), allow_nan=False)))
    if directive.mode != PLAN:
        return
    if len(directive.clocks_megahertz) != instructions:
        raise DefectError(f"a plan of {len(directive.clocks_megahertz)} clocks for {instructions} instructions")
    if not set(directive.clocks_megahertz) <= set(common_clocks(operator.state)):
        raise DefectError(f"clocks that not all ranks may hold: {directive.clocks_megahertz}")


def _check_line(line: str) -> None:
    if len(line) > MAX_LINE_CHARACTERS or not line.isprintable():
        raise DefectError(f"a line of {len(line)} characters: {line[:200]!r}")
