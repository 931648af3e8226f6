"""`wattloop logs`: what a training's output says, and why a line of it has not counted."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from wattloop.commands.main import main
from wattloop_operator.api.reporting_source import MAX_PATTERN_CHARACTERS
from wattloop_operator.domain.read_output import LineSplitter, patterns_for
from wattloop_operator.domain.training_output import number_in

COUNTS = "Epoch 1: acc=0.81\nEpoch 1: acc=0.81\nEpoch 2: acc: [0.9]\nEpoch 2: acc=0.92"
JOB = """
apiVersion: wattloop.dev/v1alpha1
kind: RecurringTrainingJob
metadata: {name: tiny}
spec:
  continuous: true
  objective: {target: {metric: acc, threshold: "0.9"}, maxEpochs: 3}
  batchSize: {default: 32, candidates: [32]}
  reporting: {source: Logs}
  template: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: train, image: none}]}}}}
"""


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("output", "options", "code", "shown"),
    [
        (
            COUNTS,
            ["--metric", "acc", "--threshold", "0.9"],
            0,
            [
                "line 1: epoch 1, acc 0.81, from 'Epoch 1: acc=0.81'",
                "line 4: epoch 2, acc 0.92, from 'Epoch 2: acc=0.92' (meets the target 0.9)",
                "passed over: line 2: 'Epoch 1: acc=0.81' is a line of this epoch",
                "passed over: line 3: 'Epoch 2: acc: [0.9]' has acc in brackets, '[0.9]'",
                "2 evaluations of acc in 4 lines",
            ],
        ),
        (COUNTS, ["--job", "job.yaml"], 0, ["line 1: epoch 1, acc 0.81", "line 4: epoch 2, acc 0.92"]),
        # A value before any epoch waits for the next one or for the end, and has the number of its own line.
        (
            "acc=0.95\nsaved\n",
            ["--job", "job.yaml"],
            0,
            ["line 1: acc 0.95, from 'acc=0.95' (meets the target 0.9)\n1 evaluation of acc in 2 lines"],
        ),
        (
            "acc=0.95\nsaved\nacc=0.96\n",
            ["--job", "job.yaml"],
            0,
            ["line 1: acc 0.95", "line 3: acc 0.96, from 'acc=0.96' (meets the target 0.9)\n2 evaluations"],
        ),
        (
            "acc=0.95\nacc=0.96\nacc=0.5\n",
            ["--job", "job.yaml"],
            0,
            [
                "line 1: acc 0.95",
                "line 3: acc 0.5",
                "passed over: line 2: 'acc=0.96' has a value that meets the target",
            ],
        ),
        (
            "acc=0.95\nEpoch 1\nacc=0.5\n",
            ["--job", "job.yaml"],
            0,
            ["line 3: epoch 1, acc 0.5", "passed over: line 1: 'acc=0.95' has a value that meets the target before"],
        ),
        # The last bar of epoch 2, which is drawn twice, counts when epoch 3 begins.
        (
            "".join(f"Epoch {epoch}: 100%|#| 1/1 [00:01<00:00, 1it/s, acc=0.7]\n" for epoch in (1, 2, 2, 3)),
            ["--metric", "acc"],
            0,
            ["line 1: epoch 1", "line 3: epoch 2", "line 4: epoch 3", "passed over: line 2: 'Epoch 2"],
        ),
        (
            "Epoch 1\nacc: 81/100 (82%)\nEpoch 2\nacc: 85/100 (86%)\n",
            ["--metric", "acc"],
            1,
            [
                "passed over: line 2, and 1 more up to line 4 likewise: 'acc: 81/100 (82%)' has acc followed by '/100'",
                "no evaluation of acc in 4 lines",
                "would read 81, 85\n",
                "would read 100, 100\n",
                "would read 82, 86\n",
                "use the one whose values are the metric",
            ],
        ),
        (
            "epoch | loss | acc\n1 | 0.5 | 0.7\n2 | 0.4 | 0.8\n3 | 0.4 | 0.9\n",
            ["--metric", "acc"],
            1,
            ["has acc at the head of a table", "would read 0.7, 0.8, 0.9\n"],
        ),
        # The head of Ultralytics, with its bar, and the rows of all classes; spaCy's names with spaces.
        (
            "".join(
                f"   {epoch}/3   2.3G   1.1   1.5   640: 100%|███| 8/8 [00:01<00:00, 4.9it/s]\n"
                "   Class  Images  Box(P   mAP50  mAP50-95): 100%|███| 4/4 [00:00<00:00, 5.5it/s]\n"
                f"     all     128   0.66   0.6{epoch}      0.46\n     cat      28   0.99   0.99      0.99\n"
                for epoch in (1, 2, 3)
            ),
            ["--metric", "mAP50"],
            1,
            ["has mAP50 at the head of a table", "would read 0.61, 0.62, 0.63\n"],
        ),
        (
            "Learn rate of x: 0.001\nE  #  LOSS NER  SCORE\n---  ---  ---  ---\n0  0  52.1  0.00\n1  200  12.1  0.71\n",
            ["--metric", "SCORE"],
            1,
            ["has SCORE at the head of a table", "would read 0, 0.71\n"],
        ),
        (
            "Epoch 1\n" + "".join(f"acc: {correct}/100\n" for correct in (81, 85, 86, 87)),
            ["--metric", "acc"],
            1,
            ["would read 81, 85, 86, …"],
        ),
        (
            "epoch,acc\n1,0.7\n2,x\n",
            ["--metric", "acc", "--source", "File"],
            0,
            ["line 2: epoch 1, acc 0.7", "passed over: line 3: '2,x' has acc 'x', which is no number"],
        ),
        # No pattern is proposed for what another field, or another line, has.
        (
            "| epoch 1 | 200/2983 batches | loss 2.5 |\n| end of epoch 1 | valid loss 6.5 |\n",
            ["--metric", "loss"],
            1,
            ["line 1: '| epoch 1 | 200/2983 batches | loss 2.5 |' has loss of a step", "target.metric to 'valid loss'"],
        ),
        ("val_acc: 0.9\n", ["--metric", "acc"], 1, ["names acc as 'val_acc': set spec.objective.target.metric"]),
        ("acc: 91%\n", ["--metric", "acc", "--threshold", "0.9"], 1, ["in percent where the threshold is a fraction"]),
        (
            "epoch 1 val_accuracy=0.83\n",
            ["--metric", "val_acuracy"],
            1,
            ["in 1 line: no line has val_acuracy and a number, but", "did you mean val_accuracy?"],
        ),
        ("loss=0.3\n", ["--metric", "acc"], 1, ["no evaluation of acc in 1 line: no line has acc and a number"]),
        (
            "Epoch 1\nacc: 81/100\n",
            ["--metric", "acc", "--pattern", r"acc: (?P<metric>\d+)"],
            0,
            ["line 2: acc 81, from 'acc: 81/100'"],
        ),
        (
            "acc: 81%\n",
            ["--metric", "acc", "--pattern", r"acc: (?P<metric>\S+)"],
            1,
            ["matches spec.reporting.pattern, and its group metric is '81%', which is no number"],
        ),
    ],
)
def test_what_counts_and_what_was_passed_over_is_shown_with_the_reason(
    output: str,
    options: list[str],
    code: int,
    shown: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("train.log").write_text(output)
    assert main(["logs", "train.log", *options]) == code
    text = capsys.readouterr().out
    places = [text.find(each) for each in shown]
    assert places == sorted(places), text
    assert places[0] >= 0, text
    assert ("spec.reporting.pattern:" in text) == any("would read" in each for each in shown)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(output.encode())))
    assert main(["logs", "-", *options]) == code
    assert capsys.readouterr().out == text


def test_json_has_the_same_with_each_proposed_pattern_and_no_number_that_json_lacks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("train.log").write_text("epoch 1 acc=nan\n")
    assert main(["logs", "train.log", "--metric", "acc", "--format", "json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert found["evaluations"] == [{"line": 1, "epoch": 1.0, "metric": "nan", "text": "epoch 1 acc=nan"}]
    Path("train.log").write_text("epoch 1: acc {0.7}\nepoch 2: acc {0.8}\n")
    assert main(["logs", "train.log", "--metric", "acc", "--format", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [each["lines"] for each in found["passed_over"]] == [2]
    [proposed] = found["proposed_patterns"]
    assert [(each["epoch"], each["metric"]) for each in proposed["reads"]] == [(1.0, 0.7), (2.0, 0.8)]
    assert main(["logs", "train.log", "--metric", "acc", "--pattern", proposed["pattern"]]) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["missing.log", "--metric", "acc"], "missing.log: found No such file or directory"),
        (["/dev/zero", "--metric", "acc"], "/dev/zero: found a device, expected a file"),
        ([".", "--metric", "acc"], "found Is a directory"),
        (["job.yaml", "--metric", "a\n"], r"--metric: found 'a\n'"),
        (["job.yaml", "--metric", "acc", "--pattern", "("], "--pattern: found '('"),
        (["job.yaml", "--metric", "acc", "--pattern", "acc"], "no group named metric"),
        (["job.yaml", "--job", "job.yaml", "--threshold", "1"], "--threshold and --job exclude each other"),
        (["job.yaml", "--metric", "acc", "--direction", "Minimize"], "--direction needs --threshold"),
        (["job.yaml", "--metric", "a", "--source", "File", "--pattern", "a"], "--pattern and --source File exclude"),
        (["job.yaml", "--job", "missing.yaml"], "missing.yaml"),
    ],
)
def test_what_cannot_be_read_is_an_error_of_usage(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["logs", *options]) == 2
    assert message in capsys.readouterr().err


@given(st.lists(st.text("ab\r\n", max_size=6)))
def test_an_output_that_comes_in_pieces_has_the_lines_that_it_has_whole(pieces: list[str]) -> None:
    lines, whole = LineSplitter(), LineSplitter()
    text = "".join(pieces)
    found = [each for piece in pieces for each in lines.feed(piece.encode())]
    assert [*found, *lines.rest()] == [*whole.feed(text.encode()), *whole.rest()]
    assert b"".join(each.text for each in (*found, *lines.rest())).decode() == text.replace("\r", "").replace("\n", "")


WORDS = st.sampled_from(["acc", "Acc:", "epoch 3", "12", "0.5", "(", "[", "*", "$", "train", "=", "%", "é", " ", "|"])


@given(st.lists(WORDS, max_size=8).map(" ".join), st.booleans())
def test_a_proposed_pattern_reads_a_number_of_its_line_and_a_manifest_takes_it(line: str, has_epochs: bool) -> None:
    for pattern in patterns_for(line, "acc", has_epochs=has_epochs):
        assert len(pattern) <= MAX_PATTERN_CHARACTERS
        found = re2.search(pattern.removeprefix(r"(?i:epoch)[\s=:#\[]*(?P<epoch>\d+)|"), line)
        assert number_in(found["metric"]) is not None
