"""The output folder of `wattloop run`, and its database: what they belong to, and who else may not use them."""

from pathlib import Path

import pytest

from support.local_runs.local_runs import HANGING, LocalJob

pytestmark = pytest.mark.processes


def test_another_seed_gpu_or_job_needs_another_output_folder(
    local_job: LocalJob, capsys: pytest.CaptureFixture[str]
) -> None:
    local_job.job(suspend=True)
    assert local_job.run() == 1
    for options, message in (
        (("--seed", "1"), "its seed is 0, this run's is 1"),
        (("--simulated-gpus", "2"), "its gpus is '1 simulated A100', this run's is '2 simulated A100'"),
        (("--gpu-model", "V100"), "this run's is '1 simulated V100'"),
    ):
        capsys.readouterr()
        assert local_job.run(*options) == 2
        assert message in capsys.readouterr().err
    local_job.job(name="another")
    assert local_job.run() == 2
    assert "its job is 'tiny', this run's is 'another'; choose another --output" in capsys.readouterr().err


def test_a_job_of_a_shared_database_belongs_to_one_output_folder(
    local_job: LocalJob, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    local_job.job()
    database = ("--database", f"sqlite:///{tmp_path / 'shared.db'}")
    assert local_job.run("--recurrences", "1", *database) == 0
    assert not (local_job.output / "wattloop.db").exists()
    other = tmp_path / "other"
    capsys.readouterr()
    assert local_job.run("--recurrences", "1", *database, output=other) == 2
    stderr = capsys.readouterr().err
    assert f"job local/tiny of this database is run from {local_job.output}" in stderr
    assert "name that folder with --output, or another database with --database" in stderr


def test_a_second_run_in_the_same_output_folder_is_rejected(
    local_job: LocalJob, capsys: pytest.CaptureFixture[str]
) -> None:
    local_job.job(HANGING)
    running = local_job.start("--recurrences", "1")
    local_job.wait_for_training(running)
    assert local_job.run("--recurrences", "1") == 2
    assert f"{local_job.output}: another wattloop run is using it; wait for it or choose another folder" in (
        capsys.readouterr().err
    )
    running.signal(2)
    assert running.ended() == 130


def test_a_folder_with_other_files_is_left_unchanged(local_job: LocalJob, capsys: pytest.CaptureFixture[str]) -> None:
    local_job.job()
    local_job.output.mkdir()
    (local_job.output / "thesis.tex").write_text("precious")
    assert local_job.run("--recurrences", "1") == 2
    assert "it contains thesis.tex and no wattloop-run.json; choose an empty folder" in capsys.readouterr().err
    assert [path.name for path in local_job.output.iterdir()] == ["thesis.tex"]


def test_a_folder_that_cannot_be_written_is_named(local_job: LocalJob, capsys: pytest.CaptureFixture[str]) -> None:
    local_job.job()
    # A path below a file, and one in a file system without folders, since root may write anywhere else.
    for output in (local_job.manifest / "output", Path("/proc/output")):
        assert local_job.run("--recurrences", "1", output=output) == 1
        assert f"{output}: cannot be used as output folder: " in capsys.readouterr().err


def test_a_file_that_is_not_a_database_is_rejected(local_job: LocalJob, capsys: pytest.CaptureFixture[str]) -> None:
    local_job.job()
    other_file = local_job.folder / "other.db"
    other_file.write_bytes(b"not a database at all" * 100)
    assert local_job.run("--recurrences", "1", "--database", f"sqlite:///{other_file}") == 1
    assert "other.db" in capsys.readouterr().err
    assert local_job.run("--recurrences", "1", "--database", "mysql://localhost/x") == 2
    assert other_file.read_bytes().startswith(b"not a database")
