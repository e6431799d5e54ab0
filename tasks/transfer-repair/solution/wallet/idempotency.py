"""Keys that make it safe to send a request again when its answer got lost."""


def find(connection, key):
    """Return the id of the transfer that was made under `key`, or None."""
    row = connection.execute("SELECT transfer_id FROM idempotency_keys WHERE key = ?", (key,)).fetchone()
    return None if row is None else row[0]


def remember(connection, key, transfer_id):
    """Note that `key` stands for a transfer from now on; the caller commits."""
    connection.execute(
        "INSERT INTO idempotency_keys (key, transfer_id) VALUES (?, ?)", (key, transfer_id)
    )
