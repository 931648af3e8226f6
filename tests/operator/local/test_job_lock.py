"""A job of a shared database is run from one folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.backends.model_backend import KEY, job
from wattloop.errors import UsageError
from wattloop_operator.local.output_folder import JOB_LOCK, lock_job
from wattloop_operator.store import Store, open_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "shared.db") as opened:
        yield opened


def folder(tmp_path: Path, name: str) -> Path:
    path = tmp_path / name
    path.mkdir()
    return path


def test_the_same_folder_can_lock_its_job_again(store: Store, tmp_path: Path) -> None:
    here = folder(tmp_path, "here")
    lock_job(store.objects, job(), here)
    lock_job(store.objects, job(), here)


def test_another_folder_is_rejected_while_the_first_exists(store: Store, tmp_path: Path) -> None:
    here, there = folder(tmp_path, "here"), folder(tmp_path, "there")
    lock_job(store.objects, job(), here)
    with pytest.raises(UsageError, match=f"job team/digits of this database is run from {here} on "):
        lock_job(store.objects, job(), there)


def test_a_moved_folder_keeps_its_job(store: Store, tmp_path: Path) -> None:
    here = folder(tmp_path, "here")
    lock_job(store.objects, job(), here)
    there = here.rename(tmp_path / "there")
    lock_job(store.objects, job(), there)
    here.mkdir()
    with pytest.raises(UsageError, match="name that folder with --output"):
        lock_job(store.objects, job(), here)


def test_a_folder_of_another_machine_counts_as_existing(store: Store, tmp_path: Path) -> None:
    store.objects.create(JOB_LOCK, KEY.namespace, KEY.name, {"host": "elsewhere", "output": "/nowhere"})
    with pytest.raises(UsageError, match="is run from /nowhere on elsewhere"):
        lock_job(store.objects, job(), folder(tmp_path, "here"))
