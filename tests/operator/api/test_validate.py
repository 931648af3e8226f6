"""`wattloop validate`: its verdicts, its output and its exit codes.

Every manifest of tests/manifests states its verdict; tests/cluster/api compares them with the API server's.
"""

import io
import json
import re
import sys
from pathlib import Path

import pytest
import yaml

from wattloop.commands.main import main
from wattloop_operator.api.manifests import check_text
from wattloop_operator.api.objective import LOWER_IS_BETTER_PATTERN

MANIFESTS = Path(__file__).parents[2] / "manifests"
VALID = sorted(MANIFESTS.glob("valid/*.yaml"))
INVALID = sorted(MANIFESTS.glob("invalid/*.yaml"))
MINIMAL = MANIFESTS / "valid" / "minimal.yaml"
TOO_LARGE_WEIGHT = MANIFESTS / "invalid" / "energy-weight-200.yaml"
TRAIN_JOB = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "spec": {"runtimeRef": {"name": "torch"}},
}
WITH_OTHER_KINDS = MANIFESTS / "valid" / "with-other-kinds.yaml"


def test_there_are_valid_and_invalid_manifests() -> None:
    assert len(VALID) >= 25
    assert len(INVALID) >= 75


@pytest.mark.parametrize("path", VALID, ids=lambda path: path.stem)
def test_a_valid_manifest_is_accepted(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["validate", str(path)])
    lines = capsys.readouterr().out.splitlines()
    assert code == 0, lines
    assert any(line.endswith(": valid") for line in lines)


@pytest.mark.parametrize("path", INVALID, ids=lambda path: path.stem)
def test_an_invalid_manifest_is_rejected_with_its_position_and_the_expected_value(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = re.findall(r"^# expect: (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert expected, "the manifest does not state its expected message"
    code = main(["validate", str(path)])
    out = capsys.readouterr().out
    assert code == 2
    for fragment in expected:
        assert fragment in out
    assert all(re.match(rf"{re.escape(str(path))}:\d+:\d+: .*found .+, expected .+", line) for line in out.splitlines())


def test_the_output_lists_valid_skipped_and_invalid_objects(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", str(MINIMAL), str(WITH_OTHER_KINDS), str(TOO_LARGE_WEIGHT), str(TOO_LARGE_WEIGHT)]) == 2
    assert capsys.readouterr().out.splitlines() == [
        f"{MINIMAL}: RecurringTrainingJob digits: valid",
        f"{WITH_OTHER_KINDS}: RecurringTrainingJob digits: valid",
        f"{WITH_OTHER_KINDS}: ConfigMap settings: skipped, not a kind of Wattloop",
        f"{TOO_LARGE_WEIGHT}:13:26: spec.objective.energyWeightPercent: found 200, expected an integer from 0 to 100",
    ]


def test_the_output_can_be_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--format", "json", str(WITH_OTHER_KINDS), str(TOO_LARGE_WEIGHT)]) == 2
    assert json.loads(capsys.readouterr().out) == {
        "problems": [
            {
                "source": str(TOO_LARGE_WEIGHT),
                "path": "spec.objective.energyWeightPercent",
                "found": "200",
                "expected": "an integer from 0 to 100",
                "line": 13,
                "column": 26,
            }
        ],
        "valid": [{"source": str(WITH_OTHER_KINDS), "manifest": "RecurringTrainingJob digits"}],
        "not_supported": [],
        "checked_in_part": [],
        "warnings": [],
        "skipped": [{"source": str(WITH_OTHER_KINDS), "manifest": "ConfigMap settings"}],
    }


def test_each_object_of_a_list_is_checked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    valid, invalid = (yaml.safe_load(path.read_text()) for path in (MINIMAL, TOO_LARGE_WEIGHT))
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}}
    typed = {"apiVersion": "wattloop.dev/v1alpha1", "kind": "RecurringTrainingJobList", "items": [invalid]}
    file = tmp_path / "listed.yaml"
    lists = [{"apiVersion": "v1", "kind": "List", "items": items} for items in ([valid, settings, typed], None)]
    file.write_text(yaml.safe_dump_all(lists))
    line = next(number for number, text in enumerate(file.read_text().splitlines(), 1) if "energyWeight" in text)
    assert main(["validate", str(file)]) == 2
    wrong, empty, *others = capsys.readouterr().out.splitlines()
    assert wrong.startswith(f"{file}:{line}:")
    assert "items[2].items[0].spec.objective.energyWeightPercent: found 200, expected an integer" in wrong
    assert empty.endswith("items: found null, expected a list of objects")
    assert [each.removeprefix(f"{file}: ") for each in others] == [
        "RecurringTrainingJob digits: valid",
        "ConfigMap settings: skipped, not a kind of Wattloop",
    ]


@pytest.mark.parametrize(
    ("changes", "reason"), [({"template": TRAIN_JOB}, "(resourcesPerNode: {} for a training without GPUs)")]
)
def test_a_valid_job_that_is_not_supported_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, object], reason: str
) -> None:
    manifest = yaml.safe_load(MINIMAL.read_text())
    manifest["spec"] |= changes
    file = tmp_path / "job.yaml"
    file.write_text(json.dumps(manifest))
    assert main(["validate", str(file)]) == 2
    line = capsys.readouterr().out
    assert line.startswith(f"{file}: RecurringTrainingJob digits: valid, but not supported: ")
    assert line.endswith(f"{reason}\n")
    assert main(["validate", "--format", "json", str(file)]) == 2
    (not_supported,) = json.loads(capsys.readouterr().out)["not_supported"]
    assert not_supported["reason"].endswith(reason)


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(MINIMAL.read_bytes())))
    assert main(["validate", "-"]) == 0
    assert capsys.readouterr().out == "-: RecurringTrainingJob digits: valid\n"


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (None, "no readable file (No such file or directory)"),
        (b"a: \xff", "a byte that is not UTF-8 at offset 3"),
        (b"#" * (10 * 1024 * 1024), "more than 1048576 bytes"),
    ],
    ids=["missing", "not UTF-8", "10 MB"],
)
def test_a_file_that_cannot_be_read_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], data: bytes | None, found: str
) -> None:
    path = tmp_path / "job.yaml"
    if data is not None:
        path.write_bytes(data)
    assert main(["validate", str(path)]) == 2
    assert f"{path}: found {found}, expected a manifest" in capsys.readouterr().out


def test_thousands_of_problems_are_limited_to_200_short_printable_lines() -> None:
    fields = "".join(f"  a{number}: 1\n" for number in range(3000))
    text = (
        f'apiVersion: wattloop.dev/v1alpha1\nkind: RecurringTrainingJob\nspec:\n  "\\e[31m\\n{"x" * 900}": 1\n{fields}'
    )
    lines = [str(problem) for problem in check_text("f.yaml", text).problems]
    assert len(lines) == 201
    assert "found 2805 more problems, expected the problems above solved first" in lines[-1]
    assert all(line.isprintable() and len(line) < 2000 for line in lines)
    assert any(r"\x1b[31m" in line for line in lines)


@pytest.mark.parametrize("kind", ["GPUPower" + "x" * 5000, "\x1b]0;title\x07"], ids=["long", "escape"])
def test_text_of_a_manifest_is_truncated_and_escaped_in_messages(kind: str) -> None:
    for version in ("wattloop.dev/v1alpha1", "v1"):
        checked = check_text("f.yaml", json.dumps({"apiVersion": version, "kind": kind}))
        shown = [*map(str, checked.problems), *checked.skipped]
        assert len(shown) == 1
        assert all(line.isprintable() and len(line) < 400 for line in shown), shown


def test_a_folder_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", str(tmp_path)]) == 2
    assert "found no readable file (Is a directory)" in capsys.readouterr().out


def test_a_file_without_manifests_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "empty.yaml"
    path.write_text("# nothing here\n")
    assert main(["validate", str(path)]) == 2
    assert capsys.readouterr().out == f"{path}: found no manifest, expected at least one\n"


def test_problems_are_in_the_order_of_the_file() -> None:
    text = MINIMAL.read_text(encoding="utf-8").replace("default: 64", "default: 0").replace("metric:", "metrik:")
    problems = check_text("f.yaml", text).problems
    assert [problem.path for problem in problems] == [
        "spec.objective.target",
        "spec.objective.target.metrik",
        "spec.batchSize.default",
    ]
    assert [problem.line for problem in problems] == sorted(problem.line or 0 for problem in problems)


def test_a_rule_for_updates_does_not_apply_to_a_manifest() -> None:
    text = (MANIFESTS / "valid" / "training-recurrence.yaml").read_text(encoding="utf-8")
    assert not check_text("f.yaml", text).problems


@pytest.mark.parametrize(
    "metric",
    [
        "loss", "eval_loss", "val_loss", "val/loss", "valLoss", "lossMean", "MSELoss", "loss2", "test_error",
        "errorRate", "top1-err", "perplexity", "ppl", "WER", "wer", "cer", "valWER", "mae", "mse", "RMSE", "val_rmse",
        "bits-per-byte", "bits_per_character", "bitsPerByte", "nll", "negative_log_likelihood", "fid", "FID.50k",
        "crossEntropy", "train.cross_entropy", "edit_distance",
    ],
)  # fmt: skip
def test_the_word_of_a_metric_that_says_that_lower_is_better_is_found(metric: str) -> None:
    assert re.search(LOWER_IS_BETTER_PATTERN, metric)


@pytest.mark.parametrize("metric", ["val_loss", "top1-err"])
def test_a_metric_whose_name_says_that_lower_is_better_needs_a_direction(metric: str) -> None:
    (problem,) = check_text("m", manifest_with_target(metric=metric)).problems
    assert (problem.path, problem.found) == ("spec.objective.target", "no direction")
    assert problem.expected.startswith("direction: Minimize")
    for direction in ("Minimize", "Maximize"):
        assert not check_text("m", manifest_with_target(metric=metric, direction=direction)).problems


@pytest.mark.parametrize(
    "metric",
    [
        "accuracy", "val_accuracy", "f1", "bleu", "mIoU", "score", "reward", "terminal_reward", "mean_return",
        "certainty", "lossless_ratio", "glossary_hits", "errands_done", "kidney_dice", "fidelity", "power",
        "tower_height", "terse", "pass-at-1", "auc", "R2", "quality",
    ],
)  # fmt: skip
def test_no_word_of_another_metric_says_that_lower_is_better(metric: str) -> None:
    assert not re.search(LOWER_IS_BETTER_PATTERN, metric)


@pytest.mark.parametrize("metric", ["accuracy", "lossless_ratio"])
def test_another_metric_needs_no_direction(metric: str) -> None:
    assert not check_text("m", manifest_with_target(metric=metric)).problems


def manifest_with_target(**target: str) -> str:
    document = yaml.safe_load(MINIMAL.read_text(encoding="utf-8"))
    document["spec"]["objective"]["target"] = {"threshold": "0.5", **target}
    return json.dumps(document)


def test_a_generated_name_may_be_30_characters_long() -> None:
    text = MINIMAL.read_text(encoding="utf-8")
    fits = text.replace("name: digits", f"generateName: {'a' * 29}-", 1)
    assert not check_text("f.yaml", fits).problems
    too_long = text.replace("name: digits", f"generateName: {'a' * 30}-", 1)
    (problem,) = check_text("f.yaml", too_long).problems
    assert "a name of at most 35 characters" in problem.expected


def test_help_shows_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        main(["validate", "--help"])
    assert exited.value.code == 0
    assert "wattloop validate examples/digits/job.yaml" in capsys.readouterr().out
