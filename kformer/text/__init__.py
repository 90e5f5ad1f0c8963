"""The text engine of all tasks: texts to ids and back, long texts in parts, a model's search, in TensorFlow graphs."""
