"""Reading profiles: rejected rows with their positions, and notes on anomalies."""

from pathlib import Path

import pytest

from support.pipelines.measured_pipelines import measured_file
from wattloop.commands.main import main
from wattloop.errors import InputError
from wattloop_planner.frequency.pipeline.instruction_profiles import Option, check_coverage
from wattloop_planner.frequency.pipeline.planning_problem import useful_options
from wattloop_planner.frequency.pipeline.profile_file import read_blocking_power, read_profile

HEADER = "stage,instruction,frequency,time,energy\n"


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "profile.csv"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("0,forward,1410,-0.1,5\n", r"line 2, column time: found '-0.1', expected a finite number above 0"),
        ("0,forward,1410,0,5\n", r"line 2, column time"),
        ("0,forward,1410,nan,5\n", r"line 2, column time: found 'nan', expected a finite number above 0"),
        ("0,forward,1410,0.1,inf\n", r"line 2, column energy"),
        ("0,forward,1410,0.1,-5\n", r"line 2, column energy"),
        ("0,forward,1410,fast,5\n", r"line 2, column time: found 'fast'"),
        ("0,forward,0,0.1,5\n", r"line 2, column frequency: found '0', expected a whole number of at least 1"),
        ("0,forward,1410.5,0.1,5\n", r"line 2, column frequency"),
        ("0,forward,30001,0.1,5\n", r"line 2, column frequency: found '30001', expected 1 to 30000 MHz"),
        ("0,forward,99999999999999999999,0.1,5\n", r"line 2, column frequency: found '9+', expected .* less than 1e15"),
        ("0,forward,1410,1e14,5\n", r"line 2, column time: found '1e14', expected 1e-09 to 1e\+06 s"),
        ("0,forward,1410,1e308,5\n", r"line 2, column time: found '1e308', expected .* less than 1e15"),
        ("0,forward,1410,1e-320,5\n", r"line 2, column time: found '1e-320', expected 1e-09 to"),
        ("0,forward,1410,0.1,1e14\n", r"line 2, column energy: found '1e14', expected 1e-09 to 1e\+12 J"),
        ("0,forward,1410,0.1,1e300\n", r"line 2, column energy: found '1e300', expected .* less than 1e15"),
        ("-1,forward,1410,0.1,5\n", r"line 2, column stage"),
        ("0,,1410,0.1,5\n", r"line 2, column instruction: found an empty cell"),
        ("0,forward,1410,0.1\n", r"line 2.*: found 4 cells, expected 5"),
        ("0,forward,1410,0.1,5\n0,forward,1410,0.2,5\n", r"line 3: found a second row .* disagrees with line 2"),
        ("", r"found a header and no rows"),
    ],
)
def test_an_invalid_row_is_rejected_with_its_position(tmp_path: Path, rows: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_profile(written(tmp_path, HEADER + rows))


def test_a_missing_column_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="line 1, column energy: found no such column"):
        read_profile(written(tmp_path, "stage,instruction,frequency,time\n0,forward,1410,0.1\n"))


def test_rows_may_have_any_order_additional_columns_and_spellings(tmp_path: Path) -> None:
    header = "energy,note,time,frequency,instruction,stage\n"
    text = header + "5,x,0.1,1410,Forward_Backward,0\n4,y,0.2,1395.0,forward-backward,0\n"
    profile = read_profile(written(tmp_path, text))
    assert profile.options == {(0, "forwardbackward"): (Option(1410, 0.1, 5.0, 2), Option(1395, 0.2, 4.0, 3))}
    assert profile.notes == ()


def test_equal_rows_are_merged_with_a_note(tmp_path: Path) -> None:
    profile = read_profile(
        written(tmp_path, HEADER + "0,forward,1410,0.1,5\n0,forward,1395,0.2,4\n0,forward,1410,0.10,5.0\n")
    )
    assert len(profile.options[0, "forward"]) == 2
    assert profile.notes == ("repeated rows were merged: line 4 (as line 2)",)


@pytest.mark.parametrize(
    ("rows", "note"),
    [
        ("0,forward,1410,0.1,5\n", "one frequency only (1410 MHz, line 2), so it cannot be slowed down"),
        (
            "0,forward,1410,0.12,5\n0,forward,1395,0.1,4\n",
            "the highest frequency (1410 MHz, line 2) is not the fastest (1395 MHz, line 3)",
        ),
        (
            "0,forward,1410,0.1,5\n0,forward,1395,0.1,4\n",
            "several frequencies take 0.1 s (1410 MHz, line 2, 1395 MHz, line 3); one is used",
        ),
        (
            "0,forward,1410,0.1,5\n0,forward,1395,0.1001,5.001\n",
            "dominated in time and energy, but by less than 0.2%, which may be noise: 1395 MHz, line 3",
        ),
    ],
)
def test_anomalous_measurements_are_reported_with_their_rows(tmp_path: Path, rows: str, note: str) -> None:
    assert read_profile(written(tmp_path, HEADER + rows)).notes == (f"stage 0, forward: {note}",)


def test_the_published_profiles_are_read_with_their_anomalies() -> None:
    profile = read_profile(measured_file("bloom"))
    assert len(profile.options) == 16
    note = "stage 0, forward: the highest frequency (1740 MHz, line 2) is not the fastest (1575 MHz, line 24)"
    assert note in profile.notes


@pytest.mark.parametrize(
    ("stages", "needed", "message"),
    [
        (1, [(0, "backward")], r"found no row of stage 0, backward \(its instructions: forward\)"),
        (2, [(1, "forward")], r"found no row of stage 1 \(stages: 0\)"),
        (0, [], r"found stage 0, expected exactly the stages 0 to -1"),
    ],
)
def test_a_missing_stage_or_instruction_is_named(
    tmp_path: Path, stages: int, needed: list[tuple[int, str]], message: str
) -> None:
    profile = read_profile(written(tmp_path, HEADER + "0,forward,1410,0.1,5\n"))
    with pytest.raises(InputError, match=message):
        check_coverage(profile, needed, stages)


def test_an_additional_stage_is_rejected_with_its_line(tmp_path: Path) -> None:
    profile = read_profile(written(tmp_path, HEADER + "0,forward,1410,0.1,5\n1,forward,1410,0.1,5\n"))
    with pytest.raises(InputError, match="line 3, column stage: found stage 1, expected exactly the stages 0 to 0"):
        check_coverage(profile, [(0, "forward")], 1)


def test_more_expensive_waiting_makes_slower_options_useful() -> None:
    options = [Option(1000, 1.0, 300.0), Option(900, 2.0, 320.0)]
    assert [len(useful_options(options, power).times_seconds) for power in (0.0, 19.0, 21.0)] == [1, 1, 2]


def test_the_blocking_power_is_the_mean_over_the_ranks_that_know_it(tmp_path: Path) -> None:
    path = tmp_path / "profile.csv"
    header = "stage,instruction,frequency,time,energy,rank,blocking_power\n"
    path.write_text(header + "0,forward,1410,0.1,20,0,80\n0,forward,1200,0.1,20,0,80\n0,forward,1410,0.1,20,1,\n")
    assert read_blocking_power(path) == 80
    path.write_text(header + "0,forward,1410,0.1,20,0,80\n0,forward,1410,0.1,20,1,90\n")
    assert read_blocking_power(path) == 85


@pytest.mark.parametrize("text", ["0,forward,1410,0.1,20\n", "0,forward,1410,0.1,20,\n"])
def test_a_profile_without_blocking_power_names_the_option(tmp_path: Path, text: str) -> None:
    path = tmp_path / "profile.csv"
    column = ",blocking_power" if text.count(",") == 5 else ""
    path.write_text(f"stage,instruction,frequency,time,energy{column}\n{text}")
    with pytest.raises(InputError, match="no blocking power, expected a number of watts in the column, or --blocking"):
        read_blocking_power(path)


def test_the_power_of_idle_gpus_is_no_profile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # What a training measures on simulated GPUs that it does not put load on, within the noise of a counter.
    path = tmp_path / "profile.csv"
    rows = [
        (stage, kind, clock, seconds, 55 * seconds * noise)
        for stage in (0, 1)
        for kind, seconds in (("forward", 0.1), ("backward", 0.2))
        for clock, noise in ((1410, 1.0), (1200, 1.005), (900, 0.995))
    ]
    header = "stage,instruction,frequency,time,energy"
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    command = ["plan", "--profile", str(path), "--stages", "2", "--microbatches", "2", "--blocking-power", "50"]
    assert main([*command, "--output", str(tmp_path / "plans")]) == 2
    error = capsys.readouterr().err
    assert "found 54.73 to 55.27 W of each instruction at 900 to 1410 MHz, the power of idle GPUs" in error
    assert "simulated GPUs need a training that puts load on them" in error
    # Two clocks that are near each other may have one power.
    path.write_text(path.read_text().replace(",900,", ",1305,"))
    assert main([*command, "--output", str(tmp_path / "plans")]) == 0
