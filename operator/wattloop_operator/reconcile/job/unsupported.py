"""Which fields of the API this version does not carry out: better no run than one that ignores what was asked."""

from __future__ import annotations

from wattloop_operator.api.recurring_training_job import RecurringTrainingJobSpec, ReportingSource


def unsupported(spec: RecurringTrainingJobSpec) -> str | None:
    """What a job asks for that this version does not carry out, and what to write instead; None: nothing."""
    if spec.reporting.source is not ReportingSource.PUSH:
        return f"spec.reporting.source {spec.reporting.source} is not carried out by this version; use Push"
    if spec.power.frequency_plan_ref is not None:
        return "spec.power.frequencyPlanRef is not carried out by this version; leave it out"
    searched = next((each.name for each in spec.parameters if len(each.candidates) > 1), None)
    if searched is not None:
        return f"this version does not search over parameter {searched}; give its default as the only candidate"
    return None
