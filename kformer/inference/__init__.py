"""Many texts through one model, whether it is a run folder or an exported SavedModel."""
