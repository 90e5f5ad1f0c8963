"""Lines of text, in the one way in which training and every command read them: `lines_of`."""
