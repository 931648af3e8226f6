"""The API server and `wattloop validate` agree on every manifest of tests/manifests.

An invalid manifest states the server's message after `# server:`: `accepted` if only a check of the cron schedule, the
time zone database, a Job's containers, parameters or the text finds the problem; nothing if kubectl cannot read the
manifest.
"""

import re
from pathlib import Path

import pytest

from support.control_plane.commands import ClusterCommand, CommandError
from wattloop_operator.api.checks.documents import read_documents

MANIFESTS = Path(__file__).parents[2] / "manifests"
VALID = MANIFESTS / "valid"
INVALID = MANIFESTS / "invalid"
CREATE = ("create", "--dry-run=server", "--validate=strict")


@pytest.mark.usefixtures("crds")
def test_the_server_accepts_valid_manifests(kubectl: ClusterCommand, namespace: str) -> None:
    documents = [
        document
        for path in sorted(VALID.glob("*.yaml"))
        for document in read_documents(str(path), path.read_text(encoding="utf-8"))
    ]
    printed = kubectl(*CREATE, f"--filename={VALID}", namespace=namespace)
    assert printed.count("created (server dry run)") == len(documents)


@pytest.mark.usefixtures("crds")
def test_the_server_rejects_invalid_manifests_for_the_stated_reason(kubectl: ClusterCommand, namespace: str) -> None:
    with pytest.raises(CommandError) as raised:
        kubectl(*CREATE, f"--filename={INVALID}", namespace=namespace)
    unexpected = {
        path.name: (expected, actual)
        for path in sorted(INVALID.glob("*.yaml"))
        if not _is_expected(expected := _expected(path), actual := _actual(path, raised.value.stderr))
    }
    assert not unexpected


def _expected(path: Path) -> str:
    messages = re.findall(r"^# server: ?(.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(messages) == 1, f"{path.name} does not state the server's message"
    return str(messages[0])


def _actual(path: Path, stderr: str) -> str:
    """The messages of kubectl about one file, without those of the chart's policies, which another test may install.

    Files that it cannot read share a line.
    """
    lines = (line for line in stderr.splitlines() if f"/{path.name}" in line)
    return "\n".join(line for line in lines if "ValidatingAdmissionPolicy" not in line)


def _is_expected(expected: str, actual: str) -> bool:
    return not actual if expected == "accepted" else bool(actual) and expected in actual
