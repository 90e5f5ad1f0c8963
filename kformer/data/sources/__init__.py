"""Where pairs come from: files by their suffix, corpora by their name (`registry`)."""
