"""A database of many jobs, one of which has very many recurrences, written in two transactions."""

import json
from collections.abc import Iterator
from dataclasses import fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from support.databases.sample_record import RECORD
from wattloop_operator.domain.records import ObservationRecord
from wattloop_operator.store.address import database_url
from wattloop_operator.store.database import Database
from wattloop_operator.store.store import Store, open_store
from wattloop_operator.store.tables import OBJECTS, OBSERVATIONS

NAMESPACE = "team"
# The job with the recurrences; the others have two each.
LONGEST = "job-0000"
SIZES = (16, 32, 64, 128)
RUNNING = f"{LONGEST}-00003-1772409600-0"
# Whoever makes a training controls these texts.
HOSTILE = "<script>alert(1)</script>\"'/&{{ 7 * 7 }}\u202e\x1b[2J"


def job_body(name: str, status: dict[str, Any] | None = None) -> dict[str, Any]:
    """A job of the local mode with this name."""
    container = {"name": "train", "image": "train", "command": ["python", "train.py"]}
    return {
        "apiVersion": "wattloop.dev/v1alpha1",
        "kind": "RecurringTrainingJob",
        "metadata": {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}", "generation": 1},
        "spec": {
            "schedule": "0 3 * * *",
            "objective": {"energyWeightPercent": 50, "target": {"metric": "accuracy", "threshold": "0.95"}},
            "batchSize": {"default": 32, "candidates": list(SIZES)},
            "template": {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}},
        },
        "status": STATUS if status is None else status,
    }


SINCE = "2026-03-02T03:00:00Z"
STATUS: dict[str, Any] = {
    "state": "Waiting",
    "conditions": [
        {"type": "Ready", "status": "True", "reason": "Scheduled", "message": "", "lastTransitionTime": SINCE},
        {
            "type": "LastRunSucceeded",
            "status": "True",
            "reason": "Reached",
            "message": "recurrence 1, batch size 32",
            "lastTransitionTime": SINCE,
        },
    ],
    "best": {"batchSize": 64},
    "totals": {"recurrences": 4},
    "arms": [
        {
            "batchSize": size,
            "observations": index,
            "meanCostJoules": str(2000 - 100 * index),
            "lowCostJoules": "900",
            "highCostJoules": "4100.5",
            "pruned": size == 128,
            "note": "crashed 3 times in a row" if size == 128 else "",
        }
        for index, size in enumerate(SIZES)
    ],
    "next": {
        "time": "2026-03-03T03:00:00Z",
        "batchSize": 64,
        "powerLimitWatts": 200,
        "kind": "Incumbent",
        "reason": "64 is the cheapest so far",
    },
    "recentRecurrences": [
        {
            "name": "digits-1",
            "index": 1,
            "batchSize": 32,
            "result": "Reached",
            "gpuEnergyJoules": "1000.0",
            "durationSeconds": "10.0",
        }
    ],
    "savings": [
        {"name": "Energy", "value": "1200.5", "low": "800.25", "high": "1600.75", "unit": "J", "text": ""},
        {"name": "Time", "value": "20.5", "low": "-10.0", "high": "50.0", "unit": "s", "text": ""},
        {"name": "LatestCost", "value": "31.40", "low": "25.20", "high": "36.00", "unit": "percent", "text": ""},
    ],
}


def make_database(path: Path, jobs: int, recurrences: int) -> Store:
    """A new open database with this many jobs, the first of which has this many recurrences."""
    open_store(path).close()
    database = Database(database_url(path))
    with database.writing("fill the database") as on:
        _fill(on, [f"job-{number:04}" for number in range(jobs)], recurrences)
    database.close()
    return open_store(path, create=False)


def _fill(on: Connection, names: list[str], recurrences: int) -> None:
    columns = [field.name for field in fields(ObservationRecord)]
    objects = [
        {
            "kind": "RecurringTrainingJob",
            "namespace": NAMESPACE,
            "name": name,
            "resource_version": number + 1,
            "body": json.dumps(job_body(name)),
        }
        for number, name in enumerate(names)
    ]
    records = [each for name in names for each in _records(name, recurrences if name == LONGEST else 2)]
    on.execute(OBJECTS.insert(), objects)
    on.execute(OBSERVATIONS.insert(), [{name: getattr(each, name) for name in columns} for each in records])


def _records(name: str, count: int) -> Iterator[ObservationRecord]:
    for index in range(count):
        size = SIZES[1] if index < 3 else SIZES[index % 3]
        moment = RECORD.scheduled_at + timedelta(hours=index)
        yield replace(
            RECORD,
            job_uid=f"uid-{name}",
            namespace=NAMESPACE,
            job_name=name,
            recurrence=index,
            recurrence_name=f"{name}-{index:05}-{int(moment.timestamp())}-0",
            batch_size=size,
            energy_joules=2000.0 - 6.0 * size + index % 7,
            scheduled_at=moment,
            finished_at=moment + timedelta(minutes=1),
            image_digest=f"sha256:{index * 4 // count}{'0' * 63}",
            decision_kind="Incumbent",
            reason=f"batch size {size} is believed cheapest",
        )


def running_recurrence(job: str, **progress: Any) -> dict[str, Any]:
    """A TrainingRecurrence that runs, with its curve and where it is expected to stop."""
    target = {"metric": "accuracy", "direction": "Maximize", "threshold": "0.95", "consecutiveEvaluations": 1}
    decision = {"policy": "ThompsonSampling", "kind": "Trial", "reason": "a trial of 64", "seed": "1", "digest": "d"}
    version = "wattloop.dev/v1alpha1"
    owner = {"apiVersion": version, "kind": "RecurringTrainingJob", "name": job, "uid": f"uid-{job}"}
    owners = [owner | {"controller": True}]
    return {
        "apiVersion": version,
        "kind": "TrainingRecurrence",
        "metadata": {"name": RUNNING, "namespace": NAMESPACE, "uid": RUNNING, "ownerReferences": owners},
        "spec": {
            "jobRef": {"name": job, "uid": f"uid-{job}"},
            "index": 3,
            "attempt": 0,
            "slot": "1772409600",
            "scheduledTime": SINCE,
            "batchSize": 64,
            "maxEpochs": 20,
            "target": target,
            "learningRateScale": "1",
            "stopCostJoules": "4000",
            "energyWeightPercent": 50,
            "decision": decision,
        },
        "status": {
            "devices": 1,
            "startTime": SINCE,
            "conditions": [{"type": "Running", "status": "True", "reason": "Running", "lastTransitionTime": SINCE}],
            "progress": {
                "epoch": "4",
                "metric": "0.9",
                "curve": [["1", "0.5"], ["2", "0.8"], ["4", "0.9"]],
                "finalMetric": ["0.94", "0.96", "0.97"],
                "energyJoules": "500",
                "timeSeconds": "2",
                "costPercent": "13.75",
                "lastReportTime": SINCE,
                **progress,
            },
        },
    }
