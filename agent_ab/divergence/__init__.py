"""Where the two arms parted, why, and how each went on."""
