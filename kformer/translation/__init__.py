"""Translates strings: combines tokenizers, model and search into one TensorFlow function."""
