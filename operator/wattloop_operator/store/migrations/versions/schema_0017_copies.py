"""SQLite keeps a copy of the rows that figures come from, by which damage is found."""

from alembic import op

revision = "0017"
down_revision = "0016"
additive = True

COLUMNS = {
    "observations": (
        "job_uid recurrence attempt namespace job_name recurrence_name batch_size power_limit_watts "
        "result epochs metric energy_joules time_seconds max_power_watts gpu_product gpu_count "
        "epoch_energy_joules epoch_time_seconds attribution decision_kind reason scheduled_at "
        "finished_at target_metric target_direction target_threshold target_evaluations "
        "template_digest image_digest curve parameters start_up_energy_joules start_up_time_seconds "
        "pipeline probe_trials probe_energy_joules probe_time_seconds measures_power_limits resumed"
    ),
    "late_usages": "job_uid recurrence attempt energy_joules time_seconds",
    "power_profiles": "id job_uid batch_size gpu_product gpu_count image_digest",
    "power_measurements": "profile_id power_limit_watts energy_joules time_seconds epochs",
    "decisions": "id job_uid recurrence attempt namespace job_name",
    "pod_energies": (
        "ledger pod_uid container gpu_uuid job_uid recurrence attempt node pod gpu_product shared "
        "energy_millijoules uncertainty_millijoules start_time_seconds time_seconds ended "
        "reported_at measured_at max_power_limit_watts"
    ),
    "attempt_progress": "namespace name uid job_uid version body outcome ending reported_at updated_at",
    "objects": "kind namespace name resource_version body",
}


def upgrade() -> None:
    """Create the indices; PostgreSQL has checksums of its own."""
    if op.get_bind().dialect.name == "sqlite":
        for table, columns in COLUMNS.items():
            op.create_index(f"{table}_copy", table, columns.split())
