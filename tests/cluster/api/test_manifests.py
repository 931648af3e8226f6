"""The API server gives every manifest of tests/manifests the verdict that `wattloop validate` gives it.

A refused manifest says with `# server:` what the server answers; `accepted` where only a look at cron, the time zone
database or the text itself shows what is wrong; nothing where kubectl already cannot read it.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.control_plane.commands import ClusterCommand, CommandError
from wattloop_operator.api.checks.documents import read_documents

MANIFESTS = Path(__file__).parents[2] / "manifests"
ACCEPTED = MANIFESTS / "accepted"
REFUSED = MANIFESTS / "refused"
CREATE = ("create", "--dry-run=server", "--validate=strict")


@pytest.mark.usefixtures("crds")
def test_right_manifests_are_accepted(kubectl: ClusterCommand, namespace: str) -> None:
    documents = [
        document
        for path in sorted(ACCEPTED.glob("*.yaml"))
        for document in read_documents(str(path), path.read_text(encoding="utf-8"))
    ]
    printed = kubectl(*CREATE, f"--filename={ACCEPTED}", namespace=namespace)
    assert printed.count("created (server dry run)") == len(documents)


@pytest.mark.usefixtures("crds")
def test_wrong_manifests_are_refused_for_the_reason_they_were_written_for(
    kubectl: ClusterCommand, namespace: str
) -> None:
    with pytest.raises(CommandError) as refusal:
        kubectl(*CREATE, f"--filename={REFUSED}", namespace=namespace)
    wrong = {
        path.name: (answer, said)
        for path in sorted(REFUSED.glob("*.yaml"))
        if not _as_expected(answer := _answer(path), said := _said(path, refusal.value.stderr))
    }
    assert not wrong


def _answer(path: Path) -> str:
    answers = re.findall(r"^# server: ?(.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(answers) == 1, f"{path.name} does not say what the server answers"
    return str(answers[0])


def _said(path: Path, stderr: str) -> str:
    """What kubectl said of one file; several files share a line where it could not read them."""
    return "\n".join(line for line in stderr.splitlines() if f"/{path.name}" in line)


def _as_expected(answer: str, said: str) -> bool:
    return not said if answer == "accepted" else bool(said) and answer in said
