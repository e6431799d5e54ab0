"""What every request to a model server is sent with."""

import pytest

from agent_ab import connection
from agent_ab.errors import UserError


def test_a_client_sends_the_key_if_there_is_one_and_waits_as_long_as_it_is_told() -> None:
    with connection.client("http://127.0.0.1:1", "secret", 7.0, Connection="close") as client:
        assert client.headers["authorization"] == "Bearer secret"
        assert client.headers["connection"] == "close"
        assert client.timeout.read == 7.0
    with connection.client("http://127.0.0.1:1", "") as client:
        assert "authorization" not in client.headers


def test_certificates_are_read_once() -> None:
    connection._certificates.cache_clear()
    for _ in range(3):
        connection.client("http://127.0.0.1:1", "").close()
    assert connection._certificates.cache_info().misses == 1


@pytest.mark.parametrize(
    "found", ["", "x", "seven77", "eight chars", "control\x07s", "eight888\n", "ключ-ключ", "\x7f" * 8, "\udcff" * 8]
)
def test_a_key_that_cannot_be_sent_or_would_be_found_by_chance_is_the_users_mistake(
    monkeypatch: pytest.MonkeyPatch, found: str
) -> None:
    monkeypatch.setenv("MY_KEY", found)
    with pytest.raises(UserError, match=r"^server\.key_variable: .*MY_KEY") as refused:
        connection.key("MY_KEY", "server.key_variable")
    assert "\n" not in str(refused.value) and (len(found) < 2 or found not in str(refused.value))


def test_a_key_of_8_visible_characters_is_taken_and_none_is_asked_for_where_none_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MY_KEY", 'a"\\~!b8,')
    assert (connection.key("MY_KEY", "--key-variable"), connection.key("", "--key-variable")) == ('a"\\~!b8,', "")
