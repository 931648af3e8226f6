"""The pictures of README and docs have the names of those that `make pictures` makes, and are small."""

import re
from typing import Any

from support.pictures import IMAGES, PICTURES, ROOT, VIEWS
from wattloop_operator.page.page_app import page_routes

MAX_BYTES = 150_000
MAX_SUM_BYTES = 500_000
PICTURE = re.compile(r"!\[[^\]]+\]\(([^)]+)\)")


def test_the_command_makes_every_picture_and_every_picture_is_shown() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    shown = {(page.parent / name).resolve() for page in pages for name in PICTURE.findall(page.read_text("utf-8"))}
    made = {IMAGES / name for name in PICTURES}
    assert shown == made
    assert set(IMAGES.iterdir()) == made


def test_each_picture_has_at_most_150_kb_and_all_have_half_a_megabyte() -> None:
    sizes = {path.name: path.stat().st_size for path in IMAGES.iterdir()}
    assert {name: size for name, size in sizes.items() if size > MAX_BYTES} == {}
    assert sum(sizes.values()) <= MAX_SUM_BYTES


def test_every_view_of_the_page_has_a_picture() -> None:
    routes: list[Any] = [route for route in page_routes().routes if getattr(route, "name", "").endswith("_page")]
    assert {route.path for route in routes} == {path.partition("?")[0] for path in VIEWS.values()}
