"""What to do with a kind that `wattloop convert` leaves out: where a RecurringTrainingJob has what it has."""

from __future__ import annotations

RUN_REQUEST = "or keep it, and have that step set spec.runRequest of a job without a schedule (docs/day-two.md)"
STEP = (
    "it starts several steps; put the container of the step that trains into spec.template.spec of a "
    "RecurringTrainingJob, and the schedule into spec.schedule"
)
AS_WORKLOAD = "it has no schedule; put its apiVersion, kind and spec into spec.template of a RecurringTrainingJob"
OF_KINDS = {
    ("argoproj.io", "CronWorkflow"): f"{STEP}, {RUN_REQUEST}",
    ("argoproj.io", "Workflow"): f"{STEP}, {RUN_REQUEST}",
    ("argoproj.io", "WorkflowTemplate"): f"{STEP}, {RUN_REQUEST}",
    ("argoproj.io", "ClusterWorkflowTemplate"): f"{STEP}, {RUN_REQUEST}",
    ("kubeflow.org", "ScheduledWorkflow"): f"{STEP}, {RUN_REQUEST}",
    ("tekton.dev", "Pipeline"): f"{STEP}, {RUN_REQUEST}",
    ("apps.kubedl.io", "Cron"): (
        "put its spec.schedule into spec.schedule of a RecurringTrainingJob, and apiVersion, kind and "
        "workload.spec of its spec.template into spec.template"
    ),
    ("batch", "Job"): "it has no schedule; put its spec into spec.template.spec of a RecurringTrainingJob",
    ("wattloop.dev", "RecurringTrainingJob"): "it is one already",
}
GROUPS_WITHOUT_SCHEDULE = frozenset(
    {
        "jobset.x-k8s.io",
        "trainer.kubeflow.org",
        "kubeflow.org",
        "ray.io",
        "training.kubedl.io",
        "batch.volcano.sh",
    }
)


def advice(manifest: object) -> str:
    """What to do with an object that is not converted; empty for one that starts no training.

    Example:
        >>> advice({"apiVersion": "batch/v1", "kind": "Job"})
        'it has no schedule; put its spec into spec.template.spec of a RecurringTrainingJob'
    """
    if not isinstance(manifest, dict):
        return ""
    group, kind = str(manifest.get("apiVersion")).partition("/")[0], str(manifest.get("kind"))
    return OF_KINDS.get((group, kind)) or (AS_WORKLOAD if group in GROUPS_WITHOUT_SCHEDULE else "")
