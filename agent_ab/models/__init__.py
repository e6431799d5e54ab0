"""GGUF files: found, read, and the small ones of our own made."""
