"""A run as files for other programs, other machines and other people."""
