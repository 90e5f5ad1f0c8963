"""Training runs: `train.train` does a whole run; the other modules are its parts.

Training reads its text with TensorFlow and computes on TensorFlow or JAX. Import its modules directly.
"""
