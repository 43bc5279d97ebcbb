"""Makes the pictures of docs/pictures/ that are no figures: reports, and `malt run --view`.

    python -m bench.pages.screenshots

Headless Chromium draws them: Debian's package chromium has it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.harness import jobs
from bench.pages import loop, terminal
from malt.commands import report

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "pictures"
_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_SCHEMES = {"dark": 0, "light": 1}
"""The names of colour schemes, and Chromium's numbers of them."""
_MOST_NBYTES = 150_000
_BARS = 87
"""Pixels of a window that are not the page's: Chromium draws them in part, at the bottom of its pictures."""
_MARGIN = 24
_WHOLE_CARDS = """<script>for (const card of document.querySelectorAll("section"))
if (card.getBoundingClientRect().bottom > innerHeight) card.style.visibility = "hidden"</script>"""
"""No card of a report is cut in two."""
_RUNS = {"bsp": ("bsp", "all"), "asp": ("asp", "ring")}


def draw(chromium: str, page: Path, name: str, scheme: str, size: tuple[int, int]) -> Path:
    """Draw the top of a page of HTML into docs/pictures; return the file. Local. OSError: there is no picture.

    What is empty at the bottom is cut off.
    """
    from PIL import Image, ImageChops

    path = PICTURES / f"{name}-{scheme}.png"
    with tempfile.TemporaryDirectory() as profile:
        drawn = Path(profile, "picture.png")
        options = [f"--user-data-dir={profile}", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                   "--virtual-time-budget=2000", f"--blink-settings=preferredColorScheme={_SCHEMES[scheme]}",
                   f"--window-size={size[0]},{size[1] + _BARS}", f"--screenshot={drawn}",
                   page.resolve().as_uri()]  # fmt: skip
        subprocess.run([chromium, *options], check=False, capture_output=True, timeout=120)
        if not drawn.exists():
            raise OSError(f"{chromium} has drawn nothing of {page}")
        with Image.open(drawn) as picture:
            shown = picture.convert("RGB").crop((0, 0, *size))
        empty = Image.new("RGB", shown.size, shown.getpixel((0, size[1] - 1)))
        box = ImageChops.difference(shown, empty).getbbox() or (0, 0, *size)
        shown.crop((0, 0, size[0], min(size[1], box[3] + _MARGIN))).save(path, optimize=True)
        if path.stat().st_size > _MOST_NBYTES:
            raise OSError(f"{path}: more than {_MOST_NBYTES:,} bytes: make the window smaller")
    return path


def main() -> int:
    """Make all pictures; return the exit status. Local."""
    chromium = next(filter(None, map(shutil.which, _NAMES)), None)
    if chromium is None:
        print("pictures: no Chromium here: apt-get install --no-install-recommends chromium", file=sys.stderr)
        return 1
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folders = [Path(name, run) for run in _RUNS]
        for folder, options in zip(folders, _RUNS.values(), strict=True):
            jobs.run(4, "--trace", folder, "-m", loop.__name__, *options, quietly=True)
        one, both = Path(name, "one.html"), Path(name, "both.html")
        report.main(folders[:1], one)
        report.main(folders, both)
        for page in (one, both):
            page.write_text(page.read_text(encoding="utf-8") + _WHOLE_CARDS, encoding="utf-8")
        try:
            view = Path(name, "view.html")
            view.write_text(terminal.page(), encoding="utf-8")
            print(draw(chromium, one, "report", "light", (1200, 1000)).relative_to(ROOT))
            print(draw(chromium, both, "comparison", "dark", (1200, 1100)).relative_to(ROOT))
            print(draw(chromium, view, "view", "dark", (960, 270)).relative_to(ROOT))
        except OSError as error:
            print(f"pictures: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
