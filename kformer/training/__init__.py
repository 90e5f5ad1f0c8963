"""Training runs: `train.train` is the whole of one; the other modules are its parts.

Training reads its text with TensorFlow and computes on TensorFlow or JAX. Import the modules themselves.
"""
