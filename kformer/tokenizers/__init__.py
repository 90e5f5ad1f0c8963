"""Convert texts to token ids and back, in TensorFlow graph operations."""

from kformer.tokenizers.base import Tokenizer
from kformer.tokenizers.byte_bpe import ByteBPETokenizer
from kformer.tokenizers.existing_sentencepiece import read_sentencepiece
from kformer.tokenizers.keras_nlp import KerasNLPTokenizer
from kformer.tokenizers.piece_vocabulary import LlamaTokenizer, PieceVocabularyTokenizer
from kformer.tokenizers.sentencepiece import SentencePieceTokenizer
from kformer.tokenizers.storage import load_tokenizer, load_tokenizers, save_tokenizer, save_tokenizers
from kformer.tokenizers.symbols import SymbolTokenizer
from kformer.tokenizers.wordpiece import WordPieceTokenizer
from kformer.tokenizers.words import WordTokenizer

__all__ = [
    "ByteBPETokenizer",
    "KerasNLPTokenizer",
    "LlamaTokenizer",
    "PieceVocabularyTokenizer",
    "SentencePieceTokenizer",
    "SymbolTokenizer",
    "Tokenizer",
    "WordPieceTokenizer",
    "WordTokenizer",
    "load_tokenizer",
    "load_tokenizers",
    "read_sentencepiece",
    "save_tokenizer",
    "save_tokenizers",
]
