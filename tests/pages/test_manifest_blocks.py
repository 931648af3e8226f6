"""The manifests of the readers' pages, and the parts of a job in a whole one, pass `wattloop validate`."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from support.reader_pages.block_table import blocks_here
from support.reader_pages.pages import Block
from wattloop.commands.main import main

JOB = """
apiVersion: wattloop.dev/v1alpha1
kind: RecurringTrainingJob
metadata: {name: digits}
spec:
  objective: {target: {metric: accuracy, threshold: "0.95"}, maxEpochs: 20}
  batchSize: {default: 64, candidates: [32, 64, 128]}
  template:
    spec:
      template:
        spec:
          restartPolicy: Never
          volumes: [{name: models, persistentVolumeClaim: {claimName: models}}]
          containers:
          - name: train
            image: digits
            command: [python, train.py]
            volumeMounts: [{name: models, mountPath: /models}]
            resources: {limits: {nvidia.com/gpu: 1}}
"""


def merged(whole: Any, part: Any) -> Any:
    """The whole with what the part says; a list is replaced."""
    if not isinstance(whole, dict) or not isinstance(part, dict):
        return part
    return {**whole, **{name: merged(whole.get(name), value) for name, value in part.items()}}


def manifest_of(text: str) -> str:
    """The manifest as it stands, or the job with a part of a spec."""
    part = yaml.safe_load(text)
    if "kind" in part:
        return text
    return yaml.safe_dump(merged(yaml.safe_load(JOB), part if "spec" in part else {"spec": part}))


def validated(text: str, folder: Path) -> int:
    """The exit code of `wattloop validate`."""
    file = folder / "manifest.yaml"
    file.write_text(manifest_of(text), encoding="utf-8")
    return main(["validate", str(file)])


@pytest.mark.parametrize("block", blocks_here("manifest"), ids=str)
def test_a_manifest_is_valid(block: Block, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert validated(block.text, tmp_path) == 0, capsys.readouterr()


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("objectiv: {}", "spec.objectiv: "),
        ("spec: {power: {limits: {}}}", "spec.power.limits: "),
        ("batchSize: {default: 7}", "spec.batchSize.default: "),
    ],
)
def test_a_part_that_is_wrong_is_found(
    text: str, place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert validated(text, tmp_path) == 2
    assert place in capsys.readouterr().out
