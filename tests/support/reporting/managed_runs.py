"""A run as Wattloop starts it, which reports to a server of the test."""

from support.reporting.report_server import ReportServer
from wattloop import Run


def managed_run(server: ReportServer, **variables: str) -> Run:
    """A run of batch size 8 with the target accuracy 0.9, for four epochs at most."""
    environment = {
        "WATTLOOP_JOB": "team/digits",
        "WATTLOOP_RECURRENCE": "digits-0",
        "WATTLOOP_BATCH_SIZE": "8",
        "WATTLOOP_PER_DEVICE_BATCH_SIZE": "8",
        "WATTLOOP_MAX_EPOCHS": "4",
        "WATTLOOP_TARGET_METRIC": "accuracy",
        "WATTLOOP_TARGET_THRESHOLD": "0.9",
        "WATTLOOP_REPORT_URL": server.url,
        **variables,
    }
    return Run(environment=environment)


def epochs_and_metrics(server: ReportServer) -> list[tuple[float, float | None, bool]]:
    """Epoch, metric and whether it is the last one, of each report."""
    return [(each["epoch"], each.get("metric"), each.get("finished", False)) for each in server.reports]
