"""Model servers: llama-server's whole life, what holds for every engine, and servers that somebody else started."""
