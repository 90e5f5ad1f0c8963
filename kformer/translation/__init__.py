"""Strings in, strings out: tokenizers, model and search behind one TensorFlow function."""
