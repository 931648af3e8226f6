"""A DAG of Airflow that runs the job of job.yaml each night, and fails if the run misses its target.

The operator is deferrable: it asks for the run, and a trigger waits for its end, so that no worker is occupied. It
needs Airflow 3 with apache-airflow-providers-cncf-kubernetes, and an account that may get and patch the job, and
create Jobs, as the chart's admission policy (admission.authors) requires of whoever starts one. The
clients of Kubernetes take seconds to import, so methods import them: Airflow reads this file again and again.
"""

# ruff: noqa: PLC0415

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG, BaseOperator
from airflow.triggers.base import BaseTrigger, TriggerEvent

JOBS = {"group": "wattloop.dev", "version": "v1alpha1", "plural": "recurringtrainingjobs"}


class RunEnded(BaseTrigger):
    """Waits until the run of a request has ended."""

    def __init__(self, job: str, namespace: str, request: str, conn_id: str, poll_seconds: float) -> None:
        super().__init__()
        self.job, self.namespace, self.request = job, namespace, request
        self.conn_id, self.poll_seconds = conn_id, poll_seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """What the triggerer makes this trigger of."""
        names = ("job", "namespace", "request", "conn_id", "poll_seconds")
        return f"{type(self).__module__}.{type(self).__qualname__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield the result of the run."""
        from airflow.providers.cncf.kubernetes.hooks.kubernetes import AsyncKubernetesHook
        from kubernetes_asyncio import client

        hook = AsyncKubernetesHook(conn_id=self.conn_id)
        async with hook.get_conn() as connection:
            jobs = client.CustomObjectsApi(connection)
            while True:
                job = await jobs.get_namespaced_custom_object(**JOBS, namespace=self.namespace, name=self.job)
                status = job.get("status", {})
                request = status.get("runRequest", {})
                if request.get("ended") == self.request:
                    yield TriggerEvent(request["result"])
                    return
                await asyncio.sleep(self.poll_seconds)


class RecurringTrainingJobRun(BaseOperator):
    """Asks a RecurringTrainingJob for a run and waits for its end.

    Args:
        job: Name of the RecurringTrainingJob.
        namespace: Its namespace.
        conn_id: Airflow's connection to the cluster.
        poll_seconds: How often the trigger looks at the job.
        wait_timeout: How long it waits; None for ever.
    """

    def __init__(
        self,
        *,
        job: str,
        namespace: str = "default",
        conn_id: str = "kubernetes_default",
        poll_seconds: float = 30,
        wait_timeout: timedelta | None = timedelta(hours=12),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.job, self.namespace, self.conn_id = job, namespace, conn_id
        self.poll_seconds, self.wait_timeout = poll_seconds, wait_timeout

    def execute(self, context: Any) -> None:
        """Ask for the run, and leave the worker."""
        from airflow.providers.cncf.kubernetes.hooks.kubernetes import KubernetesHook
        from kubernetes.client import CustomObjectsApi

        instance = context["ti"]
        # Another value for each try, because a value that was used before starts nothing.
        request = f"{instance.dag_id}.{instance.task_id}.{instance.run_id}.{instance.try_number}"[-128:]
        jobs = CustomObjectsApi(KubernetesHook(conn_id=self.conn_id).get_conn())
        patch = {"spec": {"runRequest": request}}
        jobs.patch_namespaced_custom_object(**JOBS, namespace=self.namespace, name=self.job, body=patch)
        self.defer(
            trigger=RunEnded(self.job, self.namespace, request, self.conn_id, self.poll_seconds),
            method_name="finish",
            timeout=self.wait_timeout,
        )

    def finish(self, context: Any, event: str) -> str:
        """Fail unless the run has reached its target."""
        if event != "Reached":
            raise RuntimeError(f"the run of {self.namespace}/{self.job} ended: {event}")
        return event


with DAG("retrain", schedule="@daily", start_date=datetime(2026, 1, 1, tzinfo=UTC), catchup=False):
    RecurringTrainingJobRun(task_id="digits", job="digits", namespace="research")
