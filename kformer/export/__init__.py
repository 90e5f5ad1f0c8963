"""A translator as a SavedModel, for TensorFlow Serving or anything else that loads SavedModels."""
