"""The values of the chart that readers' pages show, and parts of other kinds, are accepted."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.chart.rendering import TO_LOOK_AT, render
from support.control_plane.chart import CHART
from support.control_plane.commands import ClusterCommand
from support.reader_pages.block_table import CHART as VALUES
from support.reader_pages.block_table import OBJECTS, blocks_of
from support.reader_pages.pages import Block

# What each part of another kind is part of.
WHOLE: dict[str, dict[str, Any]] = {
    "egress": {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "spec": {"podSelector": {}, "policyTypes": ["Egress"]},
    },
    "rules": {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role"},
}


def options(text: str) -> list[list[str]]:
    """The options with values of each `helm upgrade` of a block."""
    lines = re.findall(r"^helm upgrade wattloop helm/wattloop (.*)$", text.replace("\\\n", " "), re.MULTILINE)
    kept = []
    for line in lines:
        words = shlex.split(line)
        kept.append([word for at, word in enumerate(words) if "--set" in word or "--set" in words[at - 1]])
    return kept


@pytest.mark.parametrize("block", blocks_of(VALUES), ids=str)
def test_the_values_of_a_block_are_those_of_the_chart(helm: ClusterCommand, block: Block, tmp_path: Path) -> None:
    if block.kind == "manifest":
        assert render(helm, yaml.safe_load(block.text), tmp_path)
        return
    commands = options(block.text)
    assert commands
    for words in commands:
        assert "kind: Deployment" in helm("template", "probe", str(CHART), TO_LOOK_AT, *words, namespace="home")


@pytest.mark.parametrize("block", blocks_of(OBJECTS), ids=str)
def test_a_part_of_another_kind_is_accepted(kubectl: ClusterCommand, namespace: str, block: Block) -> None:
    part = yaml.safe_load(block.text)
    (name,) = part
    whole = {**WHOLE[name], "metadata": {"name": "part"}}
    if "spec" in whole:
        whole["spec"] = {**whole["spec"], **part}
    else:
        whole |= part
    words = ("create", "--validate=strict", "--dry-run=server", "--filename=-")
    kubectl(*words, namespace=namespace, stdin=json.dumps(whole))
