"""The nouns of a bench."""

from agent_ab.bench.stats import ALL
from tests.bench_results import result


def test_the_table_leaves_out_what_was_not_applied_whatever_it_answered() -> None:
    found = result()
    assert [row.method for row in found.rows if row.kind == ALL] == ["none", "mtp-2", "eagle3"]
    found.standings["eagle3"].not_applied = "the draft does not fit"
    assert [row.method for row in found.rows if row.kind == ALL] == ["none", "mtp-2"]


def test_the_plan_is_whole() -> None:
    plan = result().plan.as_json()
    assert plan["methods"]["eagle3"] == {
        "type": "draft-eagle3",
        "draft": {"source": "generated", "path": "", "acceptance": 0.7},
        "n_max": 3,
    }
    assert [(r["id"], r["class"]) for r in plan["requests"]] == [("code-1", "code"), ("prose-1", "prose")]
    assert (plan["rounds"], plan["tokens"], plan["seed"]) == (9, 64, 4242)
    assert plan["limit_s"] is None
