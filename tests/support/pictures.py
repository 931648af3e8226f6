"""Makes the pictures of README and docs from one run of the demo: `make pictures`.

The figures are the same each time. Moments of the day, the machine's fonts and how far the run is in a frame of the
film are not.
"""

import io
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from PIL import Image
from playwright.sync_api import Browser, Page

from support.live_page import ChromiumMissingError, running_browser, serving
from wattloop_operator.store.store import open_store

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
WATTLOOP = Path(sysconfig.get_path("scripts"), "wattloop")
JOB = "namespace=local&name=digits"
# Every view of the page; a test compares them with its routes.
VIEWS = {
    "jobs": "/",
    "job": f"/job?{JOB}",
    "conditions": f"/conditions?{JOB}",
    "cluster": "/cluster",
    "month": "/month",
}
STRIP = "live-page-film.png"
PICTURES = (
    *(f"live-page-{name}.png" for name in VIEWS),
    "live-page-job-dark.png",
    STRIP,
    "demo-cost.png",
    "demo-tradeoff.png",
)
# The film has a frame after at least so many recurrences; the last one is the whole demo.
FRAMES = (2, 6, 14, 32)
WIDTH, HEIGHT = 1180, 780
# A frame shows the whole plot, at three quarters of its size.
FRAME_SCALE, FRAME_HEIGHT, GAP = 0.75, 720, 12
COLOURS = 64
POLL_SECONDS = 0.05
TIMEOUT_MILLISECONDS = 1_800_000
# Plots are loaded when they come into sight, and a page that is live may replace them meanwhile.
PLOTS_ARE_DRAWN = """() => [...document.images].every((each) => {
    each.loading = "eager";
    return each.complete && each.naturalWidth > 0;
})"""
ENDED = "(count) => document.querySelectorAll('#attempts ~ * tbody tr').length >= count"
POWER_IS_KNOWN = """() => {
    const cell = [...document.querySelectorAll("tbody")].at(-1)?.querySelector("td.number");
    return cell && /[0-9]/.test(cell.textContent);
}"""
SHOW_COSTS = "document.getElementById('costs').scrollIntoView()"


def save(image: Image.Image, name: str) -> None:
    """Write a picture with few colours, which makes a page a fifth as large."""
    image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(IMAGES / name, optimize=True)


def screenshot(page: Page) -> Image.Image:
    """The upper part of a view, with its plots."""
    page.wait_for_function(PLOTS_ARE_DRAWN, timeout=TIMEOUT_MILLISECONDS)
    return Image.open(io.BytesIO(page.screenshot()))


@contextmanager
def demo(output: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The demo while it runs; its database is there."""
    words = ["examples/digits/job.yaml", "--simulated-gpus", "1", "--recurrences", str(FRAMES[-1])]
    command = [WATTLOOP, "run", *words, "--output", output]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) as run:
        try:
            while not (output / "wattloop.db").exists():
                if run.poll() is not None:
                    raise RuntimeError("the demo ended before it began; see its message above")
                time.sleep(POLL_SECONDS)
            yield run
        finally:
            run.send_signal(signal.SIGINT)


def film(browser: Browser, url: str) -> Image.Image:
    """The costs in one tab, which stays open while the demo runs."""
    page = browser.new_page(viewport={"width": WIDTH, "height": FRAME_HEIGHT}, device_scale_factor=FRAME_SCALE)
    width, height = round(WIDTH * FRAME_SCALE), round(FRAME_HEIGHT * FRAME_SCALE)
    strip = Image.new("RGB", (2 * width + GAP, 2 * height + GAP), "white")
    page.goto(url + VIEWS["job"], timeout=0)
    pause = page.locator("#live-toggle")
    for number, recurrences in enumerate(FRAMES):
        page.wait_for_function(ENDED, arg=recurrences, timeout=TIMEOUT_MILLISECONDS)
        pause.click()
        page.evaluate(SHOW_COSTS)
        row, column = divmod(number, 2)
        strip.paste(screenshot(page), (column * (width + GAP), row * (height + GAP)))
        pause.click()
    page.close()
    return strip


def picture_of(
    browser: Browser, url: str, scheme: Literal["light", "dark"] = "light", condition: str = "true"
) -> Image.Image:
    """A view in a tab of its own, once a condition holds."""
    page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme=scheme)
    page.goto(url, timeout=0)
    page.wait_for_function(condition, timeout=TIMEOUT_MILLISECONDS)
    picture = screenshot(page)
    page.close()
    return picture


def make(folder: Path) -> None:
    """Run the demo in a folder, and write all pictures."""
    output = folder / "digits"
    with (
        demo(output) as run,
        open_store(output / "wattloop.db") as store,
        serving(store, "wattloop-output/digits") as url,
        running_browser() as browser,
    ):
        # A GPU is held only while an attempt runs.
        save(picture_of(browser, url + VIEWS["cluster"], condition=POWER_IS_KNOWN), "live-page-cluster.png")
        save(film(browser, url), STRIP)
        if run.wait() != 0:
            raise RuntimeError("the demo failed; see its message above")
        for name in VIEWS.keys() - {"cluster"}:
            save(picture_of(browser, url + VIEWS[name]), f"live-page-{name}.png")
        save(picture_of(browser, url + VIEWS["job"], "dark"), "live-page-job-dark.png")
    for name in ("cost", "tradeoff"):
        save(Image.open(output / f"{name}.png"), f"demo-{name}.png")


def main() -> int:
    """Make the pictures; returns the exit code."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            make(Path(folder))
    except ChromiumMissingError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
