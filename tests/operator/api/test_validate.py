"""`wattloop validate`: its report, its exit codes, what it reads."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
import yaml

from wattloop.commands.main import main
from wattloop_operator.api.manifests import check_text

MANIFESTS = Path(__file__).parents[2] / "manifests"
MINIMAL = MANIFESTS / "accepted" / "minimal.yaml"
WRONG = MANIFESTS / "refused" / "energy-weight-200.yaml"


def test_the_report_says_what_is_right_wrong_and_passed_over(capsys: pytest.CaptureFixture[str]) -> None:
    other = MANIFESTS / "accepted" / "with-other-kinds.yaml"
    assert main(["validate", str(MINIMAL), str(other), str(WRONG), str(WRONG)]) == 2
    assert capsys.readouterr().out.splitlines() == [
        f"{MINIMAL}: RecurringTrainingJob digits: valid",
        f"{other}: RecurringTrainingJob digits: valid",
        f"{other}: ConfigMap settings: skipped, not a kind of Wattloop",
        f"{WRONG}:15:26: spec.objective.energyWeightPercent: found 200, expected an integer from 0 to 100",
    ]


def test_the_report_is_there_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    other = MANIFESTS / "accepted" / "with-other-kinds.yaml"
    assert main(["validate", "--format", "json", str(other), str(WRONG)]) == 2
    assert json.loads(capsys.readouterr().out) == {
        "problems": [
            {
                "source": str(WRONG),
                "path": "spec.objective.energyWeightPercent",
                "found": "200",
                "expected": "an integer from 0 to 100",
                "line": 15,
                "column": 26,
            }
        ],
        "valid": [{"source": str(other), "manifest": "RecurringTrainingJob digits"}],
        "not_supported": [],
        "skipped": [{"source": str(other), "manifest": "ConfigMap settings"}],
    }


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"reporting": {"source": "Logs"}}, "use Push"),
        ({"power": {"frequencyPlanRef": {"name": "plan"}}}, "leave it out"),
        ({"parameters": [{"name": "dropout", "default": "0.1", "candidates": ["0.1", "0.2"]}]}, "the only candidate"),
    ],
)
def test_a_job_that_would_be_held_back_is_told_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, object], reason: str
) -> None:
    manifest = yaml.safe_load(MINIMAL.read_text())
    manifest["spec"] |= changes
    file = tmp_path / "job.yaml"
    file.write_text(json.dumps(manifest))
    assert main(["validate", str(file)]) == 0
    line = capsys.readouterr().out
    assert line.startswith(f"{file}: RecurringTrainingJob digits: valid, but not supported: ")
    assert line.endswith(f"{reason}\n")
    assert main(["validate", "--format", "json", str(file)]) == 0
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
def test_a_file_that_cannot_be_read_is_said_to_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], data: bytes | None, found: str
) -> None:
    path = tmp_path / "job.yaml"
    if data is not None:
        path.write_bytes(data)
    assert main(["validate", str(path)]) == 2
    assert f"{path}: found {found}, expected a manifest" in capsys.readouterr().out


def test_of_thousands_of_problems_the_first_are_told_each_on_a_short_line_that_can_be_printed() -> None:
    fields = "".join(f"  a{number}: 1\n" for number in range(3000))
    text = (
        f'apiVersion: wattloop.dev/v1alpha1\nkind: RecurringTrainingJob\nspec:\n  "\\e[31m\\n{"x" * 900}": 1\n{fields}'
    )
    lines = [str(problem) for problem in check_text("f.yaml", text).problems]
    assert len(lines) == 201
    assert "found 2806 more problems, expected the problems above solved first" in lines[-1]
    assert all(line.isprintable() and len(line) < 2000 for line in lines)
    assert any(r"\x1b[31m" in line for line in lines)


@pytest.mark.parametrize("kind", ["GPUPower" + "x" * 5000, "\x1b]0;title\x07"], ids=["long", "escape"])
def test_what_a_manifest_says_is_shown_short_and_printable(kind: str) -> None:
    for version in ("wattloop.dev/v1alpha1", "v1"):
        checked = check_text("f.yaml", json.dumps({"apiVersion": version, "kind": kind}))
        shown = [*map(str, checked.problems), *checked.skipped]
        assert len(shown) == 1
        assert all(line.isprintable() and len(line) < 400 for line in shown), shown


def test_a_folder_is_no_manifest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", str(tmp_path)]) == 2
    assert "found no readable file (Is a directory)" in capsys.readouterr().out


def test_a_file_without_manifests_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "empty.yaml"
    path.write_text("# nothing here\n")
    assert main(["validate", str(path)]) == 2
    assert capsys.readouterr().out == f"{path}: found no manifest, expected at least one\n"


def test_several_problems_of_a_document_come_in_the_order_of_the_file() -> None:
    text = MINIMAL.read_text(encoding="utf-8").replace("default: 64", "default: 0").replace("metric:", "metrik:")
    problems = check_text("f.yaml", text).problems
    assert [problem.path for problem in problems] == [
        "spec.objective.target",
        "spec.objective.target.metrik",
        "spec.batchSize.default",
    ]
    assert [problem.line for problem in problems] == sorted(problem.line or 0 for problem in problems)


def test_an_update_rule_does_not_concern_a_manifest() -> None:
    text = (MANIFESTS / "accepted" / "training-recurrence.yaml").read_text(encoding="utf-8")
    assert not check_text("f.yaml", text).problems


def test_a_generated_name_may_be_30_characters_long() -> None:
    text = MINIMAL.read_text(encoding="utf-8")
    fits = text.replace("name: digits", f"generateName: {'a' * 29}-", 1)
    assert not check_text("f.yaml", fits).problems
    too_long = text.replace("name: digits", f"generateName: {'a' * 30}-", 1)
    (problem,) = check_text("f.yaml", too_long).problems
    assert "a name of at most 35 characters" in problem.expected


def test_help_shows_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        main(["validate", "--help"])
    assert leaving.value.code == 0
    assert "wattloop validate examples/digits/job.yaml" in capsys.readouterr().out
