"""How files are written and read: whole or not at all, with checksums, as lines of text."""
