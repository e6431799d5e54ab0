"""A pair and a run as people read them: terminal, Markdown, one page."""
