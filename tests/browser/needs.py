"""What the browser tests need and this project does not ship: Chromium, and axe-core from npm.

`python -m tests.browser.needs` (a step of `make test`) gets what is missing: Chromium with apt where that is possible as
root, axe-core with npm into the cache. It never fails: where something cannot be had, the tests skip and say why.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from agent_ab.engine.engine import cache_dir

AXE = "4.14.1"
"""The version of axe-core whose findings count."""
VARIABLE = "AGENT_AB_CHROMIUM"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
APT = ("chromium", "fonts-dejavu-core")


def chromium() -> str | None:
    """Return the path of a Chromium: `AGENT_AB_CHROMIUM`, or the first one on PATH."""
    return os.environ.get(VARIABLE) or next(filter(None, map(shutil.which, NAMES)), None)


def axe() -> Path:
    """Return where axe-core lies once it was fetched."""
    return cache_dir() / "browser" / f"axe-{AXE}.min.js"


def fetch_axe() -> None:
    """Bring axe-core from npm into the cache. Raises OSError or CalledProcessError."""
    with tempfile.TemporaryDirectory(prefix="agent-ab-axe-") as room:
        subprocess.run(
            ["npm", "pack", "--silent", f"axe-core@{AXE}"], cwd=room, check=True, stdout=subprocess.DEVNULL, timeout=120
        )
        with tarfile.open(next(Path(room).glob("*.tgz"))) as packed:
            member = packed.extractfile("package/axe.min.js")
            assert member is not None
            text = member.read()
    axe().parent.mkdir(parents=True, exist_ok=True)
    # Several test processes may do this at once: each writes its own file, the last rename wins.
    with tempfile.NamedTemporaryFile(dir=axe().parent, delete=False) as file:
        file.write(text)
    Path(file.name).replace(axe())


def main() -> None:
    """Get what is missing, and say what cannot be had."""
    if chromium() is None:
        if shutil.which("apt-get") and os.geteuid() == 0:
            say("installing Chromium for the browser tests (once, about a minute)")
            environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
            for words in (("update",), ("install", "-y", "--no-install-recommends", *APT)):
                subprocess.run(
                    ["apt-get", "-qq", *words], env=environment, check=False, timeout=900, capture_output=True
                )
        if chromium() is None:
            say(
                f"no Chromium: the browser tests will be SKIPPED; `apt install {' '.join(APT)}`, or name one: {VARIABLE}="
            )
    if not axe().is_file():
        try:
            fetch_axe()
        except (OSError, subprocess.SubprocessError) as error:
            say(f"no axe-core: the accessibility tests will be SKIPPED; npm is needed to fetch it once ({error})")


def say(words: str) -> None:
    """Tell the person who runs the tests."""
    print(f"browser tests: {words}", file=sys.stderr)


if __name__ == "__main__":
    main()
