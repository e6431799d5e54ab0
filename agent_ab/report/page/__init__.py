"""The report as one self-contained page: `compose` says what is on it, `dossier` what a pair shows, `render` writes it."""
