"""A page is data: nouns and finished words."""

import json
from dataclasses import asdict

from agent_ab.report.page.compose import compose
from tests.page.runs import played, subject


def test_a_page_is_json() -> None:
    page = compose(subject([played(n, candidate=9) for n in range(4)]), (), "agent_ab test")
    data = json.loads(json.dumps(asdict(page)))
    assert data["head"]["decision"] == "INCONCLUSIVE" and len(data["pairs"]) == 4
