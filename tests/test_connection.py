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


def test_a_key_comes_from_the_environment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "a-key-of-mine")
    assert connection.key_from("MY_KEY", "server.key_variable") == "a-key-of-mine"
    assert connection.key_from("", "server.key_variable") == ""


@pytest.mark.parametrize("value", ["short", "a", " " * 8, "tab\tinside", "a key of mine", "schlüssel"])
def test_what_cannot_be_redacted_or_sent_is_no_key(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", value)
    with pytest.raises(UserError, match=r"--key-variable: what MY_KEY holds cannot be a key.* at least 8") as caught:
        connection.key_from("MY_KEY", "--key-variable")
    assert value not in str(caught.value) or value in "a"


def test_a_key_variable_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MY_KEY", raising=False)
    with pytest.raises(UserError, match="the environment has no MY_KEY"):
        connection.key_from("MY_KEY", "server.key_variable")
