"""SavedModels as any program runs them, through TensorFlow's C API: their versions, what they may do, their tensors."""
