"""Environment, token, volumes and labels that the pods of an attempt get; what the user wrote stays.

A local run has no pods: it uses `run_environment` alone.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from wattloop.run.micro_batches import micro_batches
from wattloop.run.publishing import current_of, is_url
from wattloop.wire.environment import PIPELINE_PREFIX, PREFIX, TERMINATION_MESSAGE_VARIABLE, RunEnvironment
from wattloop.wire.message_fields import shown
from wattloop_operator.api.batch_size import BatchSizeScope, DecisionKind
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.reporting_source import ReportingSource
from wattloop_operator.api.template_checks import requested_gpus, training_containers, wrong_gpu_request
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.domain.names import attempt_output
from wattloop_operator.workloads.ownership import labels_of

AGENT_SOCKET = "agent.sock"
REPORTING_VOLUME = "wattloop-reporting"
AGENT_VOLUME = "wattloop-agent"
REPORTING_FOLDER = "/var/run/secrets/wattloop.dev"
TOKEN_FILE = f"{REPORTING_FOLDER}/token"
CERTIFICATE_AUTHORITY_FILE = f"{REPORTING_FOLDER}/ca.crt"
# An annotation carries the certificates: a ConfigMap would need the right to write one into every
# namespace.
CERTIFICATE_AUTHORITY_ANNOTATION = "wattloop.dev/report-certificate-authority"
# The reporting API accepts this audience alone, and no other API accepts it.
AUDIENCE = "wattloop.dev/report"
TOKEN_SECONDS = 3600
# Variables that callbacks for Kubeflow Trainer read: a URL, and paths of files.
KUBEFLOW_URL = "KUBEFLOW_TRAINER_SERVER_URL"
KUBEFLOW_TOKEN = "KUBEFLOW_TRAINER_SERVER_TOKEN"  # noqa: S105 - the name of a variable
KUBEFLOW_AUTHORITY = "KUBEFLOW_TRAINER_SERVER_CA_CERT"
# A script is mostly the first process of its container, which ignores a SIGTERM that it does not handle.
# Kubernetes' 30 s would then keep its GPUs busy for so long after the target.
GRACE_SECONDS = 5
# With this policy the pod's status has the end of the log of a container that failed.
LOG_ON_ERROR = "FallbackToLogsOnError"
# Kubernetes' default of `terminationMessagePath`.
TERMINATION_MESSAGE_PATH = "/dev/termination-log"


class TemplateError(ValueError):
    """A template that Wattloop cannot start; the text says what to change."""


@dataclass(frozen=True)
class RunAddresses:
    """Addresses that a training process uses.

    Attributes:
        report_url: Base URL of the reporting API; empty: the process does not report.
        certificate_authority_file: Path of the certificates to verify the reporting API with.
        agent_socket: Path of the node agent's socket; empty: none.
        termination_message: Path of the container's termination message; empty: it is not a container.
        models: Folder that replaces that of `spec.output`, a volume of the cluster; empty: that one.
    """

    report_url: str = ""
    token_file: str = ""
    certificate_authority_file: str = ""
    agent_socket: str = ""
    termination_message: str = ""
    models: str = ""


@dataclass(frozen=True)
class ClusterAddresses:
    """Addresses that the training pods of a cluster use, the same for every workload.

    Attributes:
        report_url: Base URL of the reporting API; empty: pods do not report and get no token.
        certificate_authority: Certificates to verify it with, PEM; empty: those of the pod's image.
        agent_folder: Folder on every node with its agent's socket; empty: there are no agents.
    """

    report_url: str = ""
    certificate_authority: str = ""
    agent_folder: str = ""

    def in_pod(self) -> RunAddresses:
        """The addresses as paths and URLs inside a pod."""
        return RunAddresses(
            report_url=self.report_url,
            token_file=TOKEN_FILE if self.report_url else "",
            certificate_authority_file=CERTIFICATE_AUTHORITY_FILE if self.certificate_authority else "",
            agent_socket=f"{self.agent_folder}/{AGENT_SOCKET}" if self.agent_folder else "",
            termination_message=TERMINATION_MESSAGE_PATH if self.report_url else "",
        )


@dataclass(frozen=True)
class Injection:
    """Additions to the pod templates of one attempt.

    Attributes:
        labels: Labels of the pods.
        variables: Environment of the training containers.
        addresses: Addresses whose token, certificates and socket are mounted.
        grace_seconds: Time between SIGTERM and SIGKILL, unless the template has one; None: Kubernetes' default.
        keeps_last_output: Whether the kubelet copies the end of a failed training container's log into the pod's
            status, from where a message quotes it, unless the template decides that.
        training_containers: The job's `trainingContainers`; None: the default of each pod template.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    addresses: ClusterAddresses = ClusterAddresses()
    grace_seconds: int | None = None
    keeps_last_output: bool = False
    training_containers: Sequence[str] | None = None


def injection_of(
    job: RecurringTrainingJob, recurrence: TrainingRecurrence, addresses: ClusterAddresses, devices: int
) -> Injection:
    """The additions for one attempt.

    Args:
        job: The job.
        recurrence: The attempt's decision.
        addresses: Addresses that its pods use.
        devices: GPUs of all its pods together, which share the batch.
    """
    if not recurrence.spec.reporting.uses_client:
        # Only the client uses the socket; a process that sends no reports needs no token either.
        sends = recurrence.spec.reporting.sends_reports
        addresses = replace(addresses, agent_folder="") if sends else ClusterAddresses()
    in_pod = addresses.in_pod()
    if not recurrence.spec.reporting.uses_client:
        in_pod = replace(in_pod, termination_message="")
    spec = job.spec.template.spec.value if job.spec.template.is_job else {}
    # Pods of an indexed Job run together.
    parallelism = spec.get("parallelism") if spec.get("completionMode") == "Indexed" else None
    pods = max(parallelism, 1) if isinstance(parallelism, int) else 1
    variables = run_variables(job, recurrence, in_pod, devices, pods=pods)
    grace_seconds = GRACE_SECONDS if recurrence.spec.reporting.is_ended_from_outside else None
    # Otherwise the log would be read as what the training wrote into its termination message.
    keeps_last_output = recurrence.spec.reporting.source is not ReportingSource.TERMINATION_MESSAGE
    labels = labels_of(recurrence, job.spec.template.pod_labels)
    return Injection(
        labels, variables, addresses, grace_seconds, keeps_last_output, training_containers=job.spec.training_containers
    )


def run_variables(
    job: RecurringTrainingJob, recurrence: TrainingRecurrence, addresses: RunAddresses, devices: int, *, pods: int = 1
) -> dict[str, str]:
    """The environment variables of one attempt, the same in a pod and in a local run; see `run_environment`."""
    variables = run_environment(job, recurrence, addresses, devices, pods=pods).variables()
    if recurrence.spec.reporting.source is ReportingSource.KUBEFLOW_TRAINER and addresses.report_url:
        variables[KUBEFLOW_URL] = f"{report_url(addresses, recurrence)}/trainer-status"
        variables[KUBEFLOW_TOKEN] = addresses.token_file
        if addresses.certificate_authority_file:
            variables[KUBEFLOW_AUTHORITY] = addresses.certificate_authority_file
    if recurrence.spec.reporting.source is ReportingSource.LOGS:
        # Python writes a file or a pipe in blocks of 8 KiB: hours of a short log.
        variables["PYTHONUNBUFFERED"] = "1"
    return variables


def run_environment(
    job: RecurringTrainingJob, recurrence: TrainingRecurrence, addresses: RunAddresses, devices: int, *, pods: int = 1
) -> RunEnvironment:
    """The environment of one attempt, the same in a pod and in a local run.

    Args:
        job: The job.
        recurrence: The attempt's decision.
        addresses: Addresses that the process uses.
        devices: GPUs that share the global batch; 0 counts as 1.
        pods: Pods that train together and have an index.
    """
    spec, power = recurrence.spec, job.spec.power
    devices = max(devices, 1)
    per_device = job.spec.batch_size.scope is BatchSizeScope.PER_DEVICE
    parts = micro_batches(spec.batch_size * devices if per_device else spec.batch_size, devices)
    namespace, name = recurrence.metadata.namespace, recurrence.metadata.name
    models = addresses.models or spec.output_directory or ""
    return RunEnvironment(
        job=f"{namespace}/{spec.job_ref.name}",
        recurrence=name,
        batch_size=parts.global_batch_size,
        per_device_batch_size=parts.batch_size,
        learning_rate_scale=float(spec.learning_rate_scale),
        max_epochs=spec.max_epochs,
        target=spec.target.run_target,
        power_limit_watts=None if spec.power_limit_watts is None else float(spec.power_limit_watts),
        profile_power_limits=spec.profile_power_limits,
        power_selector=power.selector.value,
        max_slowdown_percent=float(power.max_slowdown_percent or 0),
        eta=spec.energy_weight_percent / 100,
        seed=int(spec.decision.seed) or None,
        parameters={parameter.upper(): value for parameter, value in spec.parameters.items()},
        advise=spec.decision.kind is DecisionKind.ADVISE,
        progress_deadline_seconds=spec.progress_deadline_seconds,
        output_directory="" if spec.output_directory is None else attempt_output(models, recurrence.metadata),
        warm_start_directory=current_of(models) if spec.warm_start else "",
        current_model="" if spec.output_directory is None else current_of(models),
        report_url=report_url(addresses, recurrence),
        token_file=addresses.token_file,
        certificate_authority_file=addresses.certificate_authority_file,
        agent_socket=addresses.agent_socket,
        termination_message_path=addresses.termination_message,
        pods=pods,
    )


def report_url(addresses: RunAddresses, recurrence: TrainingRecurrence) -> str:
    """URL of an attempt in the reporting API; empty if the process does not report."""
    url, metadata = addresses.report_url.rstrip("/"), recurrence.metadata
    return f"{url}/v1/namespaces/{metadata.namespace}/recurrences/{metadata.name}" if url else ""


def with_injection(template: Mapping[str, Any], names: Collection[str] | None, injection: Injection) -> dict[str, Any]:
    """A copy of a pod template with the additions.

    Args:
        template: `{metadata, spec}` as the user wrote it.
        names: Names of the containers that train; None: the default.
        injection: The additions.

    Raises:
        TemplateError: The template already has a variable or a volume of Wattloop's, or lacks a
            named container.
    """
    pod = copy.deepcopy(dict(template))
    metadata = pod.setdefault("metadata", None) or {}
    pod["metadata"] = metadata
    metadata["labels"] = {**(metadata.get("labels") or {}), **injection.labels}
    if injection.addresses.certificate_authority:
        annotation = {CERTIFICATE_AUTHORITY_ANNOTATION: injection.addresses.certificate_authority}
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **annotation}
    spec = pod["spec"]
    if injection.grace_seconds is not None and spec.get("terminationGracePeriodSeconds") is None:
        spec["terminationGracePeriodSeconds"] = injection.grace_seconds
    volumes = _volumes(injection.addresses)
    paths = {REPORTING_VOLUME: REPORTING_FOLDER, AGENT_VOLUME: injection.addresses.agent_folder}
    mounts = [{"name": each["name"], "mountPath": paths[each["name"]], "readOnly": True} for each in volumes]
    taken = {volume.get("name") for volume in spec.get("volumes") or ()} & {volume["name"] for volume in volumes}
    if taken:
        raise TemplateError(f"the volume name {min(taken)} is reserved for Wattloop; rename your volume")
    if volumes:
        spec["volumes"] = [*(spec.get("volumes") or ()), *volumes]
    for container in _training(spec, names):
        _inject(container, injection.variables, mounts)
        if injection.keeps_last_output and container.get("terminationMessagePolicy") is None:
            container["terminationMessagePolicy"] = LOG_ON_ERROR
    for container in spec.get("initContainers") or ():
        if container.get("terminationMessagePolicy") is None:
            container["terminationMessagePolicy"] = LOG_ON_ERROR
    return pod


def check_output_volume(spec: Mapping[str, Any], injection: Injection) -> None:
    """Check that models outlive the pod: each training container mounts a volume at the output directory or above it.

    Raises:
        TemplateError: One does not, or the pod lacks a named container.
    """
    location = injection.variables.get("WATTLOOP_OUTPUT_DIR", "")
    if not location or is_url(location):
        return
    folder = PurePosixPath(location).parent.parent
    for container in _training(dict(spec), injection.training_containers):
        paths = {PurePosixPath(str(each.get("mountPath"))) for each in container.get("volumeMounts") or ()}
        if not paths & {folder, *folder.parents}:
            raise TemplateError(
                f"spec.output.directory {folder} is on no volume of container {container.get('name')}, so that models "
                f"would be lost with their pod: add a volumeMount at {folder} or above"
            )


def gpus(spec: Mapping[str, Any], names: Collection[str] | None) -> int:
    """Number of GPUs that the training containers of one pod request.

    Raises:
        TemplateError: The pod lacks a named container, or requests another quantity than a number of GPUs.
    """
    return sum(_gpus(container) for container in _training(spec, names))


def _training(spec: Mapping[str, Any], names: Collection[str] | None) -> list[dict[str, Any]]:
    containers: list[dict[str, Any]] = spec["containers"]
    present = [str(container.get("name")) for container in containers]
    missing = sorted(set(names or ()) - set(present))
    if missing:
        raise TemplateError(f"trainingContainers names {missing[0]}, but the containers are {', '.join(present)}")
    return training_containers(containers, names)


def _gpus(container: Mapping[str, Any]) -> int:
    resources = container.get("resources")
    wrong = wrong_gpu_request({"resources": resources})
    if wrong is not None:
        place = ".".join(map(str, wrong.path[1:]))
        raise TemplateError(
            f"container {container.get('name')}: {place}: found {shown(wrong.value)}, expected {wrong.expected}"
        )
    return requested_gpus(resources)


def _inject(container: dict[str, Any], variables: Mapping[str, str], mounts: list[dict[str, Any]]) -> None:
    own = container.get("env") or []
    names = (str(each.get("name")) for each in own)
    reserved = sorted(each for each in names if each.startswith(PREFIX) and not each.startswith(PIPELINE_PREFIX))
    if reserved:
        raise TemplateError(
            f"container {container.get('name')} sets {reserved[0]}: Wattloop sets the variables {PREFIX}… and changes "
            "none of yours; remove it or rename it"
        )
    path = container.get("terminationMessagePath")
    if path and TERMINATION_MESSAGE_VARIABLE in variables:
        variables = {**variables, TERMINATION_MESSAGE_VARIABLE: str(path)}
    # Ours come first, so that the user's variables and args can use $(WATTLOOP_BATCH_SIZE).
    # $$( is the escape of $(: a parameter's value never refers to another variable.
    injected = [{"name": name, "value": value.replace("$(", "$$(")} for name, value in variables.items()]
    container["env"] = injected + list(own)
    if mounts:
        container["volumeMounts"] = [*(container.get("volumeMounts") or ()), *mounts]


def _volumes(addresses: ClusterAddresses) -> list[dict[str, Any]]:
    volumes: list[dict[str, Any]] = []
    if addresses.report_url:
        token = {"audience": AUDIENCE, "expirationSeconds": TOKEN_SECONDS, "path": "token"}
        sources: list[dict[str, Any]] = [{"serviceAccountToken": token}]
        if addresses.certificate_authority:
            reference = {"fieldPath": f"metadata.annotations['{CERTIFICATE_AUTHORITY_ANNOTATION}']"}
            sources.append({"downwardAPI": {"items": [{"path": "ca.crt", "fieldRef": reference}]}})
        volumes.append({"name": REPORTING_VOLUME, "projected": {"sources": sources}})
    if addresses.agent_folder:
        # Created if missing: a pod on a node without an agent trains without measurements.
        host = {"path": addresses.agent_folder, "type": "DirectoryOrCreate"}
        volumes.append({"name": AGENT_VOLUME, "hostPath": host})
    return volumes
