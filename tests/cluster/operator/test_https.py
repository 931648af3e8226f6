"""Reports over HTTPS: a real operator, pods that trust its certificates, and rotations of them."""

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from kubernetes.dynamic import DynamicClient

from support.control_plane.certificates import CertificateAuthority
from support.control_plane.fixtures import MakeJob, Operators
from support.control_plane.kubelet import Kubelet
from support.control_plane.objects import TRAINING_RECURRENCE
from support.control_plane.operator_process import OperatorProcess
from support.control_plane.training import AUDIENCE, TokenOfPod, environment_of
from support.control_plane.waiting import Object, wait_until
from wattloop.run.report_channel import ReportChannel
from wattloop.wire.environment import RunEnvironment
from wattloop.wire.training_messages import Report
from wattloop_operator.domain.names import JobKey
from wattloop_operator.workloads.injection import CERTIFICATE_AUTHORITY_ANNOTATION, CERTIFICATE_AUTHORITY_FILE


class Certificates:
    """The folder that the chart mounts, with certificates as a kubelet writes them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def become(self, authority: CertificateAuthority, trusted: bytes) -> None:
        """Replace the certificate by a new one of an authority, and the authorities of new pods."""
        pair = authority.server(["127.0.0.1"], ["wattloop-operator"])
        for name, content in (("tls.key", pair.private_key), ("tls.crt", pair.certificate), ("ca.crt", trusted)):
            beside = self.folder / f"{name}.new"
            beside.write_bytes(content)
            beside.replace(self.folder / name)


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path / "certificates")


@pytest.fixture
def operator(operators: Operators, certificates: Certificates) -> Callable[[], OperatorProcess]:
    """Starts the operator with the current certificates."""
    names = {"certificate": "tls.crt", "key": "tls.key", "certificate-authority": "ca.crt"}
    return operators(*(f"--report-{option}={certificates.folder / name}" for option, name in names.items()))


@pytest.fixture
def training(
    kubelet: Kubelet, cluster: DynamicClient, token_of_pod: TokenOfPod, tmp_path: Path
) -> Callable[[JobKey, int], ReportChannel]:
    """Runs the pod of a job's recurrence, by index; returns its report channel."""

    def channel(key: JobKey, index: int) -> ReportChannel:
        def of_index(found: list[Object]) -> str | None:
            names = [each["metadata"]["name"] for each in found if each["spec"]["index"] == index]
            return names[0] if names else None

        name = wait_until(
            cluster, TRAINING_RECURRENCE, of_index, f"recurrence {index} of {key.name}", namespace=key.namespace
        )
        (pod,) = kubelet.pods_of_job(name, key.namespace)
        kubelet.run(pod)
        environment = RunEnvironment.read(environment_of(pod))
        assert environment.certificate_authority_file == CERTIFICATE_AUTHORITY_FILE
        # The files of the pod's projected volume.
        token, trusted = tmp_path / f"{name}.token", tmp_path / f"{name}.crt"
        token.write_text(token_of_pod(pod, AUDIENCE))
        trusted.write_text(pod["metadata"]["annotations"][CERTIFICATE_AUTHORITY_ANNOTATION])
        return ReportChannel(environment.report_url, str(token), str(trusted))

    return channel


def delivered(channel: ReportChannel, epoch: int) -> bool:
    """Whether the report of an epoch arrives over a new connection."""
    return (
        channel.send(Report(process="p", sequence=epoch, epoch=float(epoch), metric=0.1, evaluations=epoch)) is not None
    )


def served_by(operator: OperatorProcess) -> str:
    """The certificate of a new connection."""
    host, _, port = operator.url_of("reporting API").removeprefix("https://").partition(":")
    return ssl.get_server_certificate((host, int(port)))


def epoch_of(recurrence: Object) -> str:
    """The epochs that the status of a recurrence states; empty before the first."""
    return str(recurrence.get("status", {}).get("progress", {}).get("epoch", ""))


def test_a_running_operator_serves_rotated_certificates(
    operator: Callable[[], OperatorProcess],
    certificates: Certificates,
    training: Callable[[JobKey, int], ReportChannel],
    make_job: MakeJob,
    cluster: DynamicClient,
    caplog: pytest.LogCaptureFixture,
) -> None:
    old, new = CertificateAuthority(), CertificateAuthority()
    certificates.become(old, old.certificate)
    process = operator()
    assert process.url_of("reporting API").startswith("https://127.0.0.1:")
    key = make_job(concurrencyPolicy="Allow")
    first = training(key, 0)
    assert delivered(first, 1)

    # A new certificate of the same authority does not affect the training.
    shown = served_by(process)
    certificates.become(old, old.certificate)
    assert served_by(process) != shown
    assert delivered(first, 2)

    # A new authority without a period of trust in both: earlier pods cannot report …
    certificates.become(new, new.certificate)
    assert not delivered(first, 3)
    assert "certificate verify failed" in caplog.text

    # … and later pods can.
    make_job(concurrencyPolicy="Allow", runRequest="second")
    assert delivered(training(key, 1), 1)
    wait_until(
        cluster,
        TRAINING_RECURRENCE,
        lambda found: sorted(epoch_of(each) for each in found) == ["1", "2"],
        "the second report of the first training, and one report of the second",
        namespace=key.namespace,
    )
    assert process.exit_code is None


def test_files_that_do_not_match_are_an_error_at_the_start(
    operator: Callable[[], OperatorProcess], certificates: Certificates
) -> None:
    authority = CertificateAuthority()
    certificates.become(authority, authority.certificate)
    (certificates.folder / "tls.key").write_bytes(CertificateAuthority().server([], ["another"]).private_key)
    process = operator()
    assert process.await_exit() == 1
    assert f"the certificate {certificates.folder}/tls.crt with the key" in process.log_tail()
