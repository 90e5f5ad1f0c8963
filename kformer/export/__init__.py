"""Trained models as SavedModels, for TensorFlow Serving or anything else that loads SavedModels.

NAME/
  models.config, batching.config, monitoring.config   for the start of a server; written once
  1/                                                  a version
    saved_model.pb, variables/, assets/               the SavedModel
    assets.extra/
      kformer.json, SHA256SUMS                        how it was made, and the checksums of its files
      MODEL_CARD.md, model_card.json                  what the model is
      tf_serving_warmup_requests                      requests that a server runs before it answers
"""
