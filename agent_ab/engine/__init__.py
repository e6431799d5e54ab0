"""llama-server's program: found, asked what it can do, or built."""
