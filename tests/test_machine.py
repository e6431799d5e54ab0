"""What is recorded of the machine, with and without a GPU."""

import json
import os
import subprocess
import sys
from typing import Any

from agent_ab import machine
from agent_ab.machine import Watch, identity, state
from tests.command import ROOT

FAKES = ROOT / "tests" / "fakes" / "gpu"
RECORD = "import json; from agent_ab.machine import Watch; w = Watch(); print(json.dumps(w.record()))"


def recorded_with_a_gpu() -> Any:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{FAKES}"}
    done = subprocess.run([sys.executable, "-c", RECORD], env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_a_machine_is_known_by_its_processor_cores_memory_and_system() -> None:
    facts = identity()
    assert facts["cores"] == os.cpu_count() and facts["memory_mib"] > 0
    assert facts["cpu"] and facts["system"] and isinstance(facts["gpus"], list)


def test_the_state_can_be_stored() -> None:
    assert json.loads(json.dumps(state()))["load"] >= 0


def test_the_servers_peak_memory_is_known_however_short_it_served_and_includes_what_it_started() -> None:
    watch = Watch()
    nested = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1, flush=True); input()'])"
    with subprocess.Popen([sys.executable, "-c", nested], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout and server.stdin
        server.stdout.read(1)
        with watch.serving(server.pid):
            pass
        alone = machine._peak_of_one_mib(server.pid)
        server.stdin.write(b"\n")
        server.stdin.close()
    peak = watch.record()["peak"]["server_rss_mib"]
    assert alone and peak > alone


def test_a_record_holds_start_end_and_the_servers_greatest_memory() -> None:
    watch = Watch()
    with watch.serving(os.getpid()):
        watch.look()
    record = json.loads(json.dumps(watch.record()))
    assert record["is"] == json.loads(json.dumps(identity()))
    assert record["peak"]["server_rss_mib"] > 5
    assert record["peak"]["load"] >= record["start"]["load"]


def test_a_process_that_is_gone_has_no_memory_and_breaks_nothing() -> None:
    watch = Watch()
    with subprocess.Popen([sys.executable, "-c", ""]) as other:
        other.wait()
        with watch.serving(other.pid):
            pass
    assert watch.record()["peak"]["server_rss_mib"] is None


def test_a_gpu_is_recorded_and_what_it_does_not_tell_is_left_open() -> None:
    record = recorded_with_a_gpu()
    assert record["is"]["gpus"] == [
        {
            "name": "NVIDIA GeForce RTX 3090",
            "uuid": "GPU-1234",
            "driver": "550.54",
            "memory_mib": 24576,
            "greatest_sm_mhz": 2100,
        }
    ]
    assert record["start"]["gpus"] == [
        {
            "memory_mib": 300,
            "temperature_c": 61,
            "power_w": 210,
            "power_limit_w": None,
            "sm_mhz": 1695,
            "performance_state": 2,
            "throttled": ["power limit"],
        }
    ]
    assert record["peak"]["gpu0_memory_mib"] == 300 and record["throttled"] == ["power limit"]
