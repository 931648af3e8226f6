"""Fields of a RecurringTrainingJob that an earlier version had, each with what takes its place.

Nothing is converted. `wattloop validate` and `wattloop run` name the new field where a manifest has an earlier one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# Path, with [] for the index of a list: what is expected in its place.
EARLIER_FIELDS = {
    "spec.crashBudget": "no such field: a batch size is no longer tried after 3 consecutive crashes",
    "spec.failedHistoryLimit": "spec.failedRunsHistoryLimit",
    "spec.missedRunPolicy": "no such field: one run replaces all missed ones; startingDeadlineSeconds bounds how late",
    "spec.objective.carbon": "no such field: the chart's value tariff, or --tariff of wattloop run",
    "spec.objective.earlyStop": "no such field: no run may cost more than twice the cheapest known batch size",
    "spec.objective.metricGuard": "spec.objective.target.tolerance: the number that was metricGuard.margin",
    "spec.objective.price": "no such field: the chart's value tariff, or --tariff of wattloop run",
    "spec.objective.progressDeadlineSeconds": "spec.progressDeadlineSeconds",
    "spec.parameters[].scale": "no such field: the scale follows from the candidates",
    "spec.policy": "spec.batchSize.policy (ThompsonSampling or Zeus), spec.mode Fixed, spec.learnSince",
    "spec.power.frequencyPlan.baseline": "an argument of the client: Pipeline(baseline=…)",
    "spec.power.frequencyPlan.directory": "an argument of the client: Pipeline(plan=…)",
    "spec.power.frequencyPlan.mode": "no such field: ranks of a pipeline run plans with power.mode None, and no other",
    "spec.power.frequencyPlanRef": "spec.power.frequencyPlan.name",
    "spec.power.limit": "its fields directly in spec.power",
    "spec.probes": "an argument of the client: TrainingProbe(…, plan=ProbePlan(…)) in the script",
    "spec.queue": "the labels kueue.x-k8s.io/queue-name and kueue.x-k8s.io/priority-class in "
    "spec.template.metadata.labels",
    "spec.reporting.firstEpoch": "no such field: an evaluation of epoch 0 shows that the script counts from 0",
    "spec.reporting.metricName": "spec.objective.target.metric: the name as the script prints it",
    "spec.retryPolicy": "spec.retries: the number that was retryPolicy.limit",
    "spec.successfulHistoryLimit": "spec.successfulRunsHistoryLimit",
    "spec.template.annotations": "spec.template.metadata.annotations",
    "spec.template.job": "spec.template.spec",
    "spec.template.labels": "spec.template.metadata.labels",
    "spec.template.rendezvous": "no such field: completionMode Indexed is enough",
    "spec.template.trainingContainers": "spec.trainingContainers",
    "spec.template.workload": "spec.template.apiVersion, spec.template.kind and spec.template.spec",
    "spec.trigger": "spec.schedule and spec.timeZone (trigger.cron), spec.continuous: true, or neither with "
    "spec.runRequest (trigger.manual); continuous with maxRecurrences: 1 runs once",
}
INDEX = re.compile(r"\[\d+\]")


def replacement_of(path: str) -> str | None:
    """What takes the place of an earlier field; None if no earlier version had a field at this path.

    Example:
        >>> replacement_of("spec.failedHistoryLimit")
        'spec.failedRunsHistoryLimit'
    """
    return EARLIER_FIELDS.get(INDEX.sub("[]", path))


def template_as_written(template: Mapping[str, Any]) -> tuple[tuple[str, ...], Mapping[str, Any]]:
    """Where a template has the spec of its workload, and the template in today's form, to check that spec as well.

    Example:
        >>> template_as_written({"job": {"template": {}}})
        (('job',), {'spec': {'template': {}}})
    """
    if "spec" not in template and "job" in template:
        return ("job",), {"spec": template["job"]}
    if "spec" not in template and isinstance(template.get("workload"), dict):
        return ("workload", "spec"), template["workload"]
    return ("spec",), template
