"""Names of signatures, and of outputs that only kformer's own programs ask for."""

DEFAULT_SIGNATURE = "serving_default"
DETAILED = "translate_detailed"
# Signature: how the model reads a text. Its outputs: is most of it not in the vocabulary, is its end not read? Only the
# cache has it.
READING, MOSTLY_UNKNOWN, CUT = "reading", "mostly_unknown", "cut"
