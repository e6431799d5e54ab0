"""The memory estimate against what the real llama-server says it allocates."""

import re
from pathlib import Path

import pytest

from agent_ab.config import ArmSettings, Server, Speculation
from agent_ab.doctor import memory
from agent_ab.doctor.memory import MIB
from agent_ab.engine import engine as engines
from agent_ab.models import models
from agent_ab.server import server

MTP = Speculation(type="draft-mtp", n_max=3)


def told(log: str, what: str) -> list[float]:
    """Return the MiB that the log's lines about `what` tell, in their order."""
    return [float(size) for size in re.findall(rf"{what} = +([\d.]+) MiB", log)]


@pytest.mark.parametrize("which", ["smollm2", "scripted"])
def test_weights_caches_and_states_are_what_the_server_allocates(
    engine: engines.Engine, tmp_path: Path, request: pytest.FixtureRequest, which: str
) -> None:
    model: models.Model = request.getfixturevalue(which)
    asked = Server(context=4096, kv_type_k="q8_0", kv_type_v="f16", threads=1, speculation=MTP)
    header = models.look(model.path).header
    parts = {part.name: part.total / MIB for part in memory.estimate(header, asked).parts}
    log = tmp_path / "server.log"
    port, key = server.free_port(), server.new_key()
    settings = ArmSettings(server=asked)
    with server.started(engine, settings, model, port=port, key=key, log=log) as running:
        running.wait_ready()
    text = log.read_text(encoding="utf-8", errors="replace")
    near = 0.011  # the log has two decimals
    assert told(text, "model buffer size")[0] == pytest.approx(parts["model"] + parts["MTP block"], abs=near)
    assert told(text, "KV buffer size") == pytest.approx([parts["KV cache"], parts["MTP KV cache"]], abs=near)
    assert sum(told(text, "RS buffer size")) == pytest.approx(parts.get("recurrent states", 0.0), abs=near)
    # A rule of thumb, on the safe side of what is taken here.
    buffers = told(text, "compute buffer size")[0]
    assert buffers <= parts["compute buffers"] + 1 and parts["compute buffers"] < buffers + 16
