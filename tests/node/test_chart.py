"""Behaviour of the chart that needs a real kubelet: helm test, the forwarded page, and a rotated certificate."""

import base64
import json
import socket
import ssl
import time

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from kubernetes import client

from support.agents.agent_fixture import until
from support.control_plane.commands import ClusterCommand
from support.control_plane.job_manifest import job_manifest
from support.control_plane.waiting import Object
from support.kubernetes_node.installation import OPERATORS, RELEASE
from support.kubernetes_node.node import About
from support.kubernetes_node.users import PERSON, make_editor
from support.node.waits import SLOWEST_SECONDS
from support.ui_command import serving
from wattloop_operator.cluster.auth.viewers import UI_AUDIENCE

NAMESPACE = "viewed"
SECRET = "wattloop-reporting"
AUTHORITY = "wattloop-reporting-authority"
SERVICE = "wattloop-operator"
# A kubelet looks at mounted secrets about once a minute.
MOUNTED_WITHIN_SECONDS = 400.0


@pytest.fixture(scope="module")
def authority(kubectl: ClusterCommand) -> Object:
    return secret(kubectl, AUTHORITY)


def secret(kubectl: ClusterCommand, name: str) -> Object:
    found: Object = kubectl.json("get", "secret", name, namespace=OPERATORS)
    return found


def decoded(found: Object, key: str) -> bytes:
    return base64.b64decode(found["data"][key])


def served(kubectl: ClusterCommand, trusted: bytes) -> x509.Certificate:
    """The certificate that a client of the Service is shown, which it checks as a training pod would."""
    address = kubectl.json("get", "service", SERVICE, namespace=OPERATORS)["spec"]["clusterIP"]
    context = ssl.create_default_context(cadata=trusted.decode())
    with (
        socket.create_connection((address, 8080), timeout=30) as plain,
        context.wrap_socket(plain, server_hostname=f"{SERVICE}.{OPERATORS}.svc") as encrypted,
    ):
        shown = encrypted.getpeercert(binary_form=True)
    assert shown is not None
    return x509.load_der_x509_certificate(shown)


def is_served(certificate: x509.Certificate, kubectl: ClusterCommand, trusted: bytes) -> bool:
    """Whether a client of the Service is shown this certificate; a pod of a busy machine is unready at times."""
    try:
        return served(kubectl, trusted) == certificate
    except OSError:
        return False


def another(present: x509.Certificate, authority: Object) -> tuple[bytes, bytes]:
    """A certificate for the same names by the same authority, and its key."""
    issuer = x509.load_pem_x509_certificate(decoded(authority, "tls.crt"))
    signing = serialization.load_pem_private_key(decoded(authority, "tls.key"), None)
    assert isinstance(signing, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        x509.CertificateBuilder()
        .subject_name(present.subject)
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(present.not_valid_before_utc)
        .not_valid_after(present.not_valid_after_utc)
    )
    for extension in present.extensions:
        builder = builder.add_extension(extension.value, extension.critical)
    encoded = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return builder.sign(signing, hashes.SHA256()).public_bytes(serialization.Encoding.PEM), encoded


def test_helm_test_runs_a_tiny_recurrence_over_https(helm: ClusterCommand, kubectl: ClusterCommand) -> None:
    said = helm("test", RELEASE, "--timeout=300s", namespace=OPERATORS, timeout=330)
    assert "Phase:          Succeeded" in said
    left = ("get", "rtj,pods", "--selector=app.kubernetes.io/component=check", "--output=name", "--all-namespaces")
    # The kubelet removes a pod after its deletion.
    until(lambda: kubectl(*left) == "", "nothing of the check is left", SLOWEST_SECONDS)
    deployment = kubectl.json("get", "deployment", SERVICE, namespace=OPERATORS)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert f"--report-url=https://{SERVICE}.{OPERATORS}.svc:8080" in container["args"]


def test_the_page_is_forwarded_through_the_kubelet_to_viewers_who_see_the_jobs_that_they_may_list(
    node: About, kubectl: ClusterCommand, core: client.CoreV1Api
) -> None:
    make_editor(node, kubectl, core, NAMESPACE)
    kubectl.apply(job_manifest("seen", suspend=True), namespace=NAMESPACE)
    with serving(kubectl, kubectl.kubeconfig, "--forward") as page:
        assert page.get("/api/jobs").status_code == 401
        for namespace, account, names in ((NAMESPACE, PERSON, ["seen"]), (OPERATORS, "default", [])):
            token = kubectl("create", "token", account, f"--audience={UI_AUDIENCE}", namespace=namespace).strip()
            seen = page.get("/api/jobs", headers={"Authorization": f"Bearer {token}"}).json()
            assert seen["viewer"] == f"system:serviceaccount:{namespace}:{account}"
            assert [each["name"] for each in seen["jobs"]] == names


def test_a_renewed_certificate_is_served_by_the_same_pods(kubectl: ClusterCommand, authority: Object) -> None:
    trusted = decoded(authority, "tls.crt")
    present = served(kubectl, trusted)
    pods = kubectl("get", "pods", "--output=name", namespace=OPERATORS)
    certificate, key = another(present, authority)
    found = secret(kubectl, SECRET)
    kept = {name: found["metadata"][name] for name in ("name", "namespace", "labels", "annotations")}
    data = found["data"] | {
        "tls.crt": base64.b64encode(certificate).decode(),
        "tls.key": base64.b64encode(key).decode(),
    }
    body = {"apiVersion": "v1", "kind": "Secret", "type": found["type"], "metadata": kept, "data": data}
    # Under Helm's field manager, so that the next upgrade finds no other manager's fields.
    options = ("--server-side", "--field-manager=helm", "--force-conflicts", "--filename=-")
    kubectl("apply", *options, stdin=json.dumps(body))

    renewed = x509.load_pem_x509_certificate(certificate)
    deadline = time.monotonic() + MOUNTED_WITHIN_SECONDS
    while not is_served(renewed, kubectl, trusted):
        assert time.monotonic() < deadline, "the new certificate is not served"
        time.sleep(1.0)
    assert kubectl("get", "pods", "--output=name", namespace=OPERATORS) == pods
