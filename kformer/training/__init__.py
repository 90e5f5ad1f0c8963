"""Loss, metrics, learning rate, optimizer, callbacks and checkpoints of a training run.

Everything but `callbacks.TensorBoardLog` runs on every Keras backend. Import the modules themselves.
"""
