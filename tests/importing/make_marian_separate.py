"""A small Marian model with a vocabulary for each side and a softmax of its own, in the file of an old PyTorch."""

import json
import pathlib

import make_example
import make_marian
import make_translator
import sentencepiece
import torch
import transformers

OPTIONS = {"normalization_rule_name": "identity", "character_coverage": 0.999}


def make(folder: pathlib.Path) -> None:
    sizes = {}
    for side, size in (("source", 300), ("target", 260)):
        make_example.sentencepiece_model(folder / f"{side}.spm", size, **OPTIONS)
        processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{side}.spm"))
        pieces = sorted(processor.id_to_piece(number) for number in range(3, size))
        # The id of the padding is one for both sides.
        vocabulary = ["</s>", "<unk>", "<pad>", *pieces]
        name = "vocab.json" if side == "source" else "target_vocab.json"
        vocab = {piece: number for number, piece in enumerate(vocabulary)}
        (folder / name).write_text(json.dumps(vocab, ensure_ascii=False), encoding="utf-8")
        sizes[side] = len(vocab)
    config = transformers.MarianConfig(
        vocab_size=sizes["source"],
        decoder_vocab_size=sizes["target"],
        share_encoder_decoder_embeddings=False,
        tie_word_embeddings=False,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        max_position_embeddings=128,
        pad_token_id=2,
        decoder_start_token_id=2,
        eos_token_id=0,
        bos_token_id=0,
        activation_function="relu",
        scale_embedding=False,
        init_std=0.7,
        **make_marian.SIZES,
    )
    torch.manual_seed(8)
    model = transformers.MarianMTModel(config).eval()
    model.lm_head.weight.data.normal_(0, 0.4)
    model.model.decoder.embed_tokens.weight.data[2] = 0.3  # the padding may have been trained, as the start
    make_translator.heed_source(model)
    make_translator.favour_end(model, model.model.decoder.layers[-1].final_layer_norm.bias, 3.0)
    model.generation_config.update(num_beams=4, max_length=20, bad_words_ids=[[2]], forced_eos_token_id=None)
    options = {"source_lang": "eng", "target_lang": "spa", "separate_vocabs": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(options))
    model.config.save_pretrained(folder)
    model.generation_config.save_pretrained(folder)
    state = model.state_dict()
    state["lm_head.weight"] = state["lm_head.weight"].t().contiguous().t()  # the same numbers in another order
    torch.save(state, folder / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    tokenizer = transformers.MarianTokenizer.from_pretrained(folder)
    make_example.note(folder, make_translator.answers(model, tokenizer, make_example.lines()))
