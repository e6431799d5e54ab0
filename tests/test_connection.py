"""What every request to a model server is sent with."""

from agent_ab import connection


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
