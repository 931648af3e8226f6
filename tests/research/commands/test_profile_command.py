"""`wattloop pipeline profile`: profiles of exported instructions and of dumps."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from wattloop.commands.main import main
from wattloop_planner.frequency.pipeline.profile_file import read_profile

CLOCKS = (1740, 1500, 1200, 900)
MICROBATCHES, ITERATIONS, STAGES = 4, 2, 2
FORWARD_SECONDS = {1740: 0.02, 1500: 0.023, 1200: 0.028, 900: 0.04}
WATTS = {1740: 250.0, 1500: 200.0, 1200: 150.0, 900: 140.0}
EXPORT = ["--microbatches", str(MICROBATCHES), "--iterations", str(ITERATIONS), "--clocks", "1740,1500,1200,900"]


class Rank:
    """One rank of an export: each instruction has exact power, and the counter is read at each change of power."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.now, self.joules = 100.0, 5_000.0
        self.readings: list[tuple[float, float]] = []
        self.rows: list[tuple[str, float, float]] = []

    def spend(self, name: str, seconds: float, watts: float) -> None:
        begin = self.now
        self.readings.append((self.now, self.joules))
        self.now, self.joules = self.now + seconds, self.joules + watts * seconds
        if name:
            self.rows.append((name, begin, self.now))

    def round_at(self, clock: int) -> None:
        for _ in range(ITERATIONS * MICROBATCHES):
            if self.rank == STAGES - 1:
                self.spend("batch_input", 1e-5, 80.0)
            self.spend("batch_input", 0.001, 90.0)
            self.spend("forward_microstep", FORWARD_SECONDS[clock] * (1 + self.rank), WATTS[clock])
            self.spend("backward_microstep", 2 * FORWARD_SECONDS[clock], WATTS[clock] + 20)
            self.spend("", 0.01, 80.0)


def export(folder: Path, *, warm_up_rounds: int = 0) -> None:
    """An export as the published one."""
    folder.mkdir()
    for number in range(STAGES):
        rank = Rank(number)
        for clock in (*[CLOCKS[0]] * warm_up_rounds, *CLOCKS):
            rank.round_at(clock)
        rank.spend("", 1.0, 80.0)
        for name, columns, rows in (
            ("instructions", ("instruction", "start", "end"), rank.rows),
            ("time-energy", ("time", "energy"), rank.readings),
        ):
            with (folder / f"{name}-{number}.csv").open("w", newline="") as stream:
                writer = csv.writer(stream)
                writer.writerow(columns)
                writer.writerows(rows)


def test_an_export_becomes_a_profile_that_plans_the_pipeline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    export(tmp_path / "export")
    file = tmp_path / "profile.csv"
    command = ["pipeline", "profile", "--from", str(tmp_path / "export"), *EXPORT, "--output", str(file)]
    assert main([*command, "--lowest-clock", "0", "--blocking-power", "80", "--gpu-product", "NVIDIA A40"]) == 0
    assert capsys.readouterr().err == "2 stages at 4 clocks from 1740 to 900 MHz\n"
    options = read_profile(file).options
    for stage in range(STAGES):
        for option in options[stage, "forward"]:
            seconds = FORWARD_SECONDS[option.frequency_megahertz] * (1 + stage)
            assert option.time_seconds == pytest.approx(seconds)
            assert option.energy_joules == pytest.approx(seconds * WATTS[option.frequency_megahertz])
        # Of the last rank, the first load of each pair is left out.
        assert [option.time_seconds for option in options[stage, "load"]] == pytest.approx([0.001] * 4)
    plans = ["--stages", "2", "--microbatches", "4", "--plans", "3", "--output", str(tmp_path / "plans")]
    assert main(["plan", "--profile", str(file), *plans]) == 0
    assert "# GPU product: NVIDIA A40\n" in (tmp_path / "plans" / "freqs_pipeline_00000.py").read_text()


@pytest.mark.parametrize(
    ("options", "lowest", "said"),
    [
        # 0.028 s at 150 W takes less than 0.04 s at 140 W.
        ([], 1200, "1 clocks below 1200 MHz were left out (by energy, without --blocking-power): no instruction saves"),
        (["--blocking-power", "80"], 1200, "1 clocks below 1200 MHz were left out (by e − P·t): no instruction saves"),
        (["--blocking-power", "125"], 900, ""),
        (["--lowest-clock", "1300"], 1500, "2 clocks below --lowest-clock were left out"),
    ],
)
def test_clocks_at_which_no_instruction_saves_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], lowest: int, said: str
) -> None:
    export(tmp_path / "export")
    file = tmp_path / "profile.csv"
    command = ["pipeline", "profile", "--from", str(tmp_path / "export"), *EXPORT, "--output", str(file)]
    assert main([*command, *options]) == 0
    assert said in capsys.readouterr().err
    found = {option.frequency_megahertz for each in read_profile(file).options.values() for option in each}
    assert min(found) == lowest


def test_rounds_that_warm_up_are_left_out(tmp_path: Path) -> None:
    export(tmp_path / "export", warm_up_rounds=1)
    files = tmp_path / "with.csv", tmp_path / "without.csv"
    export(tmp_path / "exact")
    base = ["pipeline", "profile", *EXPORT, "--lowest-clock", "0"]
    assert main([*base, "--from", str(tmp_path / "export"), "--warm-up-rounds", "1", "--output", str(files[0])]) == 0
    assert main([*base, "--from", str(tmp_path / "exact"), "--output", str(files[1])]) == 0
    found, expected = (read_profile(file).options for file in files)
    for key, options in expected.items():
        assert [each.energy_joules for each in found[key]] == pytest.approx([each.energy_joules for each in options])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--iterations", "3"], "which are 2 whole rounds of 12"),
        (["--iterations", "1"], "which are 8 whole rounds of 4 after 0 that warm up, expected 1 to 4 rounds"),
        (["--microbatches", "0"], "--microbatches 0: must be at least 1"),
        (["--warm-up", "2"], "--warm-up: is of dumps; an export has --warm-up-rounds"),
        (["--lowest-clock", "2000"], "--lowest-clock 2000: no clock remains; the highest is 1740 MHz"),
        (["--blocking-power", "-1"], "--blocking-power -1: must be a finite number of at least 0"),
    ],
)
def test_an_export_that_contradicts_the_options_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    export(tmp_path / "export")
    command = ["pipeline", "profile", "--from", str(tmp_path / "export"), *EXPORT, "--output", str(tmp_path / "p.csv")]
    code = main([*command, *options])
    assert code == (0 if options == ["--iterations", "3"] else 2)
    if code:
        assert message in capsys.readouterr().err
        assert not (tmp_path / "p.csv").exists()


def test_missing_options_and_files_of_an_export_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    export(tmp_path / "export")
    base = ["pipeline", "profile", "--from", str(tmp_path / "export"), "--output", str(tmp_path / "p.csv")]
    assert main(base) == 2
    assert "--microbatches, --iterations, --clocks or --gpu: missing" in capsys.readouterr().err
    lines = (tmp_path / "export" / "time-energy-1.csv").read_text().splitlines()
    (tmp_path / "export" / "time-energy-1.csv").write_text("\n".join([*lines[:5], "1,1", *lines[5:]]))
    assert main([*base, *EXPORT]) == 2
    assert "time-energy-1.csv: line 6, column time: found 1, less than before" in capsys.readouterr().err
    (tmp_path / "export" / "time-energy-1.csv").write_text("\n".join(lines[:20]))
    assert main([*base, *EXPORT]) == 2
    assert "expected instructions within the readings of time-energy-1.csv" in capsys.readouterr().err
    (tmp_path / "export" / "instructions-0.csv").unlink()
    assert main([*base, *EXPORT]) == 2
    assert "found instructions of the ranks [1], expected those of all ranks from 0 on" in capsys.readouterr().err
    assert main(["pipeline", "profile", "--from", str(tmp_path / "none"), "--output", "-"]) == 1


def dump(folder: Path, number: int, clocks: list[int], instructions: list[str] | None, seconds: float) -> None:
    """A run of one rank: 3 iterations, of which the first takes longer; forward takes half of backward."""
    folder.mkdir(exist_ok=True)
    times = {"forward": [9.0, seconds], "backward": [9.0, 2 * seconds]}
    breakdown = {kind: [[first] * 2, [each] * 2, [each] * 2] for kind, (first, each) in times.items()}
    entry: dict[str, Any] = {
        "rank": 0,
        "iter_time": [40.0, 6 * seconds, 6 * seconds],
        "iter_energy": [1.0, 1.0, 1.0],
        "time_breakdown": breakdown,
        "energy_breakdown": {
            kind: [[watts * each for each in row] for row in breakdown[kind]]
            for kind, watts in (("forward", 100), ("backward", 125))
        },
    }
    (folder / f"{number}.prof.json").write_text(json.dumps([entry]))
    clocks_of_rank = {"rank": 0, "power_states": clocks}
    if instructions is not None:
        clocks_of_rank["instructions"] = instructions
    (folder / f"{number}.sched.json").write_text(json.dumps([clocks_of_rank]))


def test_dumps_at_known_clocks_become_a_profile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, file = tmp_path / "dumps", tmp_path / "profile.csv"
    named = ["forward:0:0", "forward:0:1", "backward:0:0", "backward:0:1"]
    dump(folder, 0, [], named, 0.5)  # at free clocks
    # Perseus' profiler: one clock, more power states than instructions.
    dump(folder, 1, [1410] * 6, None, 1.0)
    dump(folder, 2, [1410, 1410, 990, 990, 990, 990], None, 7.0)  # under a plan, of unknown instructions
    dump(folder, 3, [1200, 990, 1200, 990], named, 1.5)
    command = ["pipeline", "profile", "--from", str(folder), "--output", str(file), "--lowest-clock", "0"]
    assert main(command) == 0
    assert capsys.readouterr().err == "1 stages at 3 clocks from 1410 to 990 MHz\n"
    found = {
        (kind, option.frequency_megahertz): (option.time_seconds, option.energy_joules)
        for (_, kind), options in read_profile(file).options.items()
        for option in options
    }
    assert found == {
        ("forward", 1410): (1.0, 100.0),
        ("forward", 1200): (1.5, 150.0),
        ("forward", 990): (1.5, 150.0),
        ("backward", 1410): (2.0, 250.0),
        ("backward", 1200): (3.0, 375.0),
        ("backward", 990): (3.0, 375.0),
    }
    assert main([*command, "--iterations", "2"]) == 2
    assert f"--iterations: is of an export, and {folder} has no instructions-N.csv" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("clocks", "message"),
    [
        ("[]", "found no clocks of rank 0, expected those of each rank of the run"),
        ("{}", "expected a list with an object per rank"),
        ('[{"rank": 0, "power_states": [0]}]', "column power_states: found 0, expected 1 to"),
        ('[{"rank": 0, "power_states": [1410], "instructions": ["x"]}]', "expected kind:stage:microbatch"),
        ('[{"rank": 0, "power_states": [1410], "instructions": ["forward:0:0", "forward:0:1"]}]', "a clock for each"),
        ('[{"rank": 0, "power_states": []}]', "found no run whose clocks are known"),
    ],
)
def test_clocks_of_another_form_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], clocks: str, message: str
) -> None:
    dump(tmp_path / "dumps", 0, [1410], None, 1.0)
    (tmp_path / "dumps" / "0.sched.json").write_text(clocks)
    assert main(["pipeline", "profile", "--from", str(tmp_path / "dumps"), "--output", "-"]) == 2
    assert message in capsys.readouterr().err


def test_an_energy_that_is_not_known_is_an_empty_cell(tmp_path: Path) -> None:
    folder, file = tmp_path / "dumps", tmp_path / "profile.csv"
    dump(folder, 0, [1410], None, 1.0)
    dump(folder, 1, [1200], None, 1.5)
    (entry,) = json.loads((folder / "1.prof.json").read_text())
    entry["energy_breakdown"]["forward"] = []
    (folder / "1.prof.json").write_text(json.dumps([entry]))
    assert main(["pipeline", "profile", "--from", str(folder), "--output", str(file), "--lowest-clock", "0"]) == 0
    with file.open(newline="") as stream:
        cells = {(row["instruction"], row["frequency"]): row["energy"] for row in csv.DictReader(stream)}
    assert cells["forward", "1200"] == ""
    assert float(cells["forward", "1410"]) == 100
    assert float(cells["backward", "1200"]) == 375


def test_dumps_without_energies_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sample = Path(__file__).parents[2] / "data" / "perseus" / "prof_sample"
    assert main(["pipeline", "profile", "--from", str(sample), "--output", str(tmp_path / "p.csv")]) == 2
    assert "found no energy of stage 0, backward; stage 0, forward" in capsys.readouterr().err
