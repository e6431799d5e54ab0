"""Give a fake a name of its own and its faults: its arguments are the real program's, and its environment is scrubbed."""

import shlex
import sys
from pathlib import Path

FAKES = Path(__file__).parent


def llama_server(folder: Path, *faults: str) -> Path:
    """Write an executable `llama-server` with the given faults into `folder` and return its path."""
    words = [sys.executable, "-I", "-S", str(FAKES / "llama_server.py"), *faults, "--"]
    return program(folder / "llama-server", f'exec {shlex.join(words)} "$@"')


def vllm(folder: Path, *faults: str) -> Path:
    """Write an executable `vllm` with the given faults into `folder` and return its path."""
    words = [sys.executable, "-I", "-S", str(FAKES / "vllm_server.py"), *faults, "--"]
    return program(folder / "vllm", f'exec {shlex.join(words)} "$@"')


def program(path: Path, script: str) -> Path:
    """Write an executable shell script and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return path
