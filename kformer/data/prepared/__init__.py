"""Corpora of files that are read and tokenized once, and opened again without their texts.

`corpus` has what people use, `prepare_corpus`. It makes folders in a cache, each named after a hash of all that decides
its content: `texts-...` what is known of the pairs, see `texts`; `labels-...` the labels of classifiers and taggers;
`tokenizers-...` the vocabularies that were learned; and `ids-...` the ids of the training part, see `shards`. So a
changed file, setting or tokenizer makes a new folder.
"""
