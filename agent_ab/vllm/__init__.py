"""vLLM, the second engine: found, started, proved, watched and stopped."""
