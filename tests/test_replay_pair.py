import io

import pytest
from rich.console import Console

from agent_ab.divergence.reply_diff import Token
from agent_ab.errors import ApparatusError, UserError
from agent_ab.lossless.replay_pair import by_url, compare_all, data, view
from agent_ab.model import Arm, Event, ExchangeLog
from agent_ab.requests import Recorded
from tests.builders import exchange, pair
from tests.fakes import verbose_server as fake

ASKED = tuple(
    Recorded(f"exchange-{i}", "recorded", {"messages": [{"role": "user", "content": "hello"}]}) for i in range(2)
)
LOG = ExchangeLog((exchange(0, content="one two", reasoning="hm"), exchange(1, content="one six", reasoning="hm")), ())
THEN = {"one six": (Token(3, "one"), Token(3, "six")), "hm": (Token(2, "hm"),)}


def ignore(_event: Event) -> None:
    """Observe nothing."""


def text(renderable: object) -> str:
    sink = io.StringIO()
    Console(file=sink, width=100).print(renderable)
    return sink.getvalue()


def test_every_reply_is_laid_beside_the_one_that_was_recorded() -> None:
    with fake.serving() as server:
        answered = by_url(server.url + "/v1/", "", ASKED, ignore)
    result = compare_all(pair(), Arm.BASELINE, LOG, answered, THEN)
    first, second = result.rows
    assert first.difference is None
    assert second.difference is not None and (second.difference.path, second.difference.character) == ("content", 6)
    assert second.difference.token is not None
    told = data(result)
    assert (told["equal"], told["from"], len(told["replies"])) == (1, "baseline", 2)
    assert told["symptoms"]["now"]["drafted"] == 4
    shown = text(view(result))
    assert "1 of 2 replies are equal" in shown and "nowhere, equal" in shown and server.url in shown


def test_a_url_that_is_none_and_a_key_that_is_not_there_are_the_users_mistakes() -> None:
    with pytest.raises(UserError, match="--key-variable: the environment has no NOT_THERE"):
        by_url("http://127.0.0.1:1", "NOT_THERE", ASKED, ignore)
    with pytest.raises(UserError, match="--url"):
        by_url("http://[", "", ASKED, ignore)


def test_a_silent_server_is_broken_apparatus() -> None:
    with pytest.raises(ApparatusError):
        by_url("http://127.0.0.1:1", "", ASKED, ignore)
