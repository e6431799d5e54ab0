"""One file a step, never edited after it has shipped."""
