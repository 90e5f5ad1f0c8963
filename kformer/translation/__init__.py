"""Translates strings: tokenizers, model and search combined into one TensorFlow function."""
