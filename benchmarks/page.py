"""A report of many pairs: size of the page, time to write it, and time until it can be used in headless Chromium.

python benchmarks/page.py [PAIRS]

The pairs are the recorded control suites' (tests/golden/suites.tar.xz), copied under new seeds with all their evidence.
"""

import hashlib
import json
import os
import random
import shutil
import sys
import tarfile
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from playwright.sync_api import sync_playwright

from agent_ab.model import FileDigest, Pair
from agent_ab.report.page import gather
from agent_ab.store.store import Store, pair_from_json, pair_to_json
from tests.browser import needs

ROOT = Path(__file__).parent.parent
RUN = "benchmark"


def main(pairs: int) -> None:
    """Print one line a figure."""
    program = needs.chromium()
    if program is None:
        sys.exit("no Chromium: python -m tests.browser.needs")
    with tempfile.TemporaryDirectory(prefix="agent-ab-page-") as room:
        place = Path(room)
        grow(place, pairs)
        page = place / "report.html"
        store = Store(place / "many.db")
        begin = time.perf_counter()
        subject = gather.subject_of(store, RUN, place / "many.db", place / "runs")
        loaded = time.perf_counter()
        gather.write_page(subject, place / "runs", page)
        written = time.perf_counter()
        store.close()
        whole = page.read_text(encoding="utf-8").count('data-evidence="whole"')
        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {pairs} pairs")
        print(f"read and judged in {loaded - begin:.1f} s, page written in {written - loaded:.1f} s")
        print(f"{page.stat().st_size / 1e6:.2f} MB, conversations of {whole} pairs embedded, the others linked")
        interactive(program, page)


def interactive(program: str, page: Path) -> None:
    """Print how long a browser takes until the page can be used, and until a pair is shown; medians of five."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        usable, opened = [], []
        for _ in range(5):
            tab = browser.new_page(viewport={"width": 1280, "height": 900})
            tab.goto(page.as_uri())
            tab.wait_for_selector("html[data-ready]", state="attached")
            # What the browser itself noted: from the start of navigation to the end of our script, and to the first paint.
            usable.append(tab.evaluate("performance.getEntriesByName('usable')[0].startTime"))
            begin = time.perf_counter()
            tab.evaluate("location.hash = 'pair=1'")
            tab.wait_for_selector("#pair-proof")
            opened.append((time.perf_counter() - begin) * 1e3)
            nodes = tab.evaluate("document.querySelectorAll('*').length")
            tab.close()
        browser.close()
    print(f"usable after {sorted(usable)[2]:.0f} ms, {nodes} elements; a pair opens in {sorted(opened)[2]:.0f} ms")


def grow(place: Path, pairs: int) -> None:
    """Write a run of `pairs` pairs with all their evidence."""
    with tarfile.open(ROOT / "tests" / "golden" / "suites.tar.xz") as packed:
        packed.extractall(place / "given", filter="data")
    given = Store(place / "given" / "runs.db")
    whole = [given.load_pair(f"{run.id}/{state.id}") for run in given.runs() for state in given.pair_states(run.id)]
    plan = given.run(whole[0].run).plan
    given.close()
    # The greater part unchanged, as of a candidate worth a report.
    equal, broken = ([p for p in whole if bool(p.flips) is flipped] for flipped in (False, True))
    tasks = sorted({p.task for p in whole})
    chance = random.Random(4242)
    store = Store(place / "many.db")
    store.save_run(RUN, "benchmark", "0", plan, kind="suite", blocks=pairs // len(tasks))
    for number in range(pairs):
        task, block = tasks[number % len(tasks)], number // len(tasks)
        pool = broken if chance.random() < 0.1 else equal
        model = chance.choice([p for p in pool if p.task == task])
        store.save_pair(copied(model, place, block, chance))
    store.end_run(RUN, "finished")
    store.close()


def copied(pair: Pair, place: Path, block: int, chance: random.Random) -> Pair:
    """Return `pair` as another pair of the new run, its evidence copied, its times varied."""
    identity = f"{pair.task}-{block}-0"
    target = place / "runs" / RUN / identity
    shutil.copytree(place / "given" / "runs" / pair.run / pair.id, target)
    arms = {}
    for arm in ("baseline", "candidate"):
        attempt = getattr(pair, arm)
        assert attempt.agent
        agent = replace(attempt.agent, duration_s=attempt.agent.duration_s * chance.uniform(0.7, 1.4))
        evidence = tuple(FileDigest(f.path, f.sha256, f.size, f.mode) for f in attempt.evidence)
        digest = hashlib.sha256(f"{identity}{arm}".encode()).hexdigest()
        log = attempt.log and replace(
            attempt.log, exchanges=tuple(replace(e, agent_sha256=digest) for e in attempt.log.exchanges)
        )
        arms[arm] = replace(attempt, agent=agent, evidence=evidence, log=log)
    made = replace(pair, run=RUN, id=identity, seed=block, block=block, **arms)
    recorded = pair_to_json(made)
    (target / "pair.json").write_text(json.dumps(recorded), encoding="utf-8")
    return pair_from_json(recorded)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
