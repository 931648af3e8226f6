"""The cache of a build: its contents, and when it builds again."""

from pathlib import Path

import pytest

from support.images.caching import made_once


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "a.py").write_text("a")
    return folder


class Making:
    """Fills folders and counts how often."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, folder: Path) -> None:
        self.times += 1
        (folder / "made").write_text(str(self.times))


def test_a_folder_is_built_once_for_the_same_sources_and_again_for_others(tmp_path: Path, source: Path) -> None:
    make, cache = Making(), tmp_path / "cache"
    first = made_once(cache, "thing", ["1.0", source], make)
    (source / "__pycache__").mkdir()
    (source / "__pycache__" / "a.pyc").write_text("compiled")
    (source / "native.so").write_text("built in place")
    assert made_once(cache, "thing", ["1.0", source], make) == first
    assert (first / "made").read_text() == "1"
    (source / "a.py").write_text("b")
    second = made_once(cache, "thing", ["1.0", source], make)
    (source / "a.py").rename(source / "b.py")
    third = made_once(cache, "thing", ["1.0", source], make)
    assert made_once(cache, "thing", ["1.1", source], make) not in {first, second, third}
    assert len({first, second, third}) == 3
    assert make.times == 4


def test_only_recently_used_folders_are_kept(tmp_path: Path) -> None:
    make, cache = Making(), tmp_path / "cache"
    folders = [made_once(cache, "thing", [word], make, keep=2) for word in ("one", "two", "three")]
    other = made_once(cache, "other", ["one"], make, keep=1)
    assert [folder.exists() for folder in (*folders, other)] == [False, True, True, True]


def test_a_failed_build_leaves_no_folder(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").write_text("half")
        raise OSError("no space left")

    make, cache = Making(), tmp_path / "cache"
    with pytest.raises(OSError, match="no space left"):
        made_once(cache, "thing", ["one"], fail)
    made = made_once(cache, "thing", ["one"], make)
    assert [path.name for path in made.iterdir()] == ["made"]
    assert [path for path in cache.iterdir() if path.is_dir()] == [made]
