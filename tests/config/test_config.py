import dataclasses
import json
import math
import pathlib
import re

import pytest

from kformer.config import (
    SIZES,
    DecodingConfig,
    TrainingConfig,
    TransformerConfig,
    check_aligned,
    check_guided_alignment,
    check_positions,
    check_scores,
    check_subword_sampling,
    read_mapping,
    read_parts,
)


class TestTransformerConfig:
    def test_the_defaults_are_the_papers_base_model(self):
        assert TransformerConfig() == TransformerConfig.of_size("base")
        config = TransformerConfig()
        assert (config.d_model, config.d_ff, config.num_heads, config.dropout_rate) == (512, 2048, 8, 0.1)
        assert (config.num_encoder_layers, config.num_decoder_layers) == (6, 6)
        paper = {
            "source_vocab_size": 37000,
            "target_vocab_size": 37000,
            "attention_dropout_rate": 0.0,
            "norm_first": False,
            "activation": "relu",
            "normalization": "layer_norm",
            "use_bias": True,
            "positional_encoding": "sinusoidal",
            "max_wavelength": 10000.0,
            "first_position": 0,
            "depth": "stacked",
            "embedding_tying": "all",
            "scale_embeddings": True,
            "normalize_embeddings": False,
            "softmax_bias": False,
            "task": "translate",
        }
        assert {name: getattr(config, name) for name in paper} == paper

    def test_fields_of_variants_have_values_that_suit_them(self):
        config = TransformerConfig()
        assert (config.max_length, config.max_relative_distance, config.layer_norm_epsilon) == (1024, 16, 1e-6)
        assert (config.halting_epsilon, config.ponder_cost) == (0.01, 0.01)
        assert (config.pad_id, config.start_id, config.end_id) == (0, 1, 2)
        absent = ("head_dim", "num_key_value_heads", "attention_window", "embedding_dim")
        assert [getattr(config, name) for name in absent] == [None] * 4
        assert not config.keep_pooler

    def test_sizes(self):
        assert list(SIZES)[:4] == ["tiny", "small", "base", "big"]
        assert all(name.endswith("-shallow-decoder") for name in list(SIZES)[4:])
        big = TransformerConfig.of_size("big")
        assert (big.d_model, big.d_ff, big.num_heads, big.dropout_rate) == (1024, 4096, 16, 0.3)
        for name, values in SIZES.items():
            config = TransformerConfig.of_size(name)
            assert {key: getattr(config, key) for key in values} == values

    @pytest.mark.parametrize(
        ("name", "depths", "d_model", "d_ff", "num_heads"),
        [
            ("tiny", (3, 3), 128, 512, 4),
            ("small", (3, 3), 256, 1024, 4),
            ("small-shallow-decoder", (6, 1), 256, 1024, 4),
            ("tiny-shallow-decoder", (4, 1), 192, 768, 3),
            ("base-shallow-decoder", (12, 1), 512, 2048, 8),
        ],
    )
    def test_a_size_is_that_of_the_documentation(self, name, depths, d_model, d_ff, num_heads):
        config = TransformerConfig.of_size(name)
        assert (config.num_encoder_layers, config.num_decoder_layers) == depths
        assert (config.d_model, config.d_ff, config.num_heads, config.dropout_rate) == (d_model, d_ff, num_heads, 0.1)

    def test_a_size_takes_changes(self):
        config = TransformerConfig.of_size("tiny", d_ff=300, norm_first=True)
        assert (config.d_model, config.d_ff, config.norm_first) == (128, 300, True)

    def test_an_unknown_size(self):
        with pytest.raises(ValueError, match=r"There is no size 'huge'. Choose one of tiny, small, base, big"):
            TransformerConfig.of_size("huge")

    @pytest.mark.parametrize(
        "name",
        [
            "source_vocab_size",
            "target_vocab_size",
            "d_model",
            "d_ff",
            "num_heads",
            "num_key_value_heads",
            "head_dim",
            "attention_window",
            "embedding_dim",
            "max_length",
            "max_relative_distance",
            "layer_norm_epsilon",
            "max_wavelength",
        ],
    )
    @pytest.mark.parametrize("value", [0, -3])
    def test_sizes_are_positive(self, name, value):
        with pytest.raises(ValueError, match=f"{name} must be greater than 0 and finite. Received: {name}={value}"):
            TransformerConfig(**{name: value})

    @pytest.mark.parametrize(("encoder", "decoder"), [(0, 0), (-1, 6), (6, -1)])
    def test_there_is_an_encoder_or_a_decoder(self, encoder, decoder):
        received = f"Received: num_encoder_layers={encoder}, num_decoder_layers={decoder}"
        with pytest.raises(ValueError, match=f"must be at least 0, and one of them at least 1. {received}"):
            TransformerConfig(num_encoder_layers=encoder, num_decoder_layers=decoder)
        assert TransformerConfig(num_encoder_layers=0).num_decoder_layers == 6
        assert TransformerConfig(num_decoder_layers=0).num_encoder_layers == 6

    @pytest.mark.parametrize("name", ["dropout_rate", "attention_dropout_rate", "halting_epsilon"])
    @pytest.mark.parametrize("value", [-0.1, 1.0])
    def test_rates_are_shares(self, name, value):
        with pytest.raises(ValueError, match=f"{name} must be at least 0 and below 1. Received: {name}={value}"):
            TransformerConfig(**{name: value})

    @pytest.mark.parametrize(
        ("name", "choices"),
        [
            (
                "positional_encoding",
                "sinusoidal, sinusoidal_halves, learned, rotary, alibi, relative, relative_values, relative_buckets",
            ),
            ("embedding_tying", "all, target, none"),
            ("activation", "relu, gelu, gelu_tanh, silu, swiglu, geglu, geglu_tanh"),
            ("normalization", "layer_norm, rms_norm"),
            ("depth", "stacked, shared, adaptive"),
        ],
    )
    def test_choices(self, name, choices):
        with pytest.raises(ValueError, match=f"{name} must be one of {choices}. Received: {name}='fancy'"):
            TransformerConfig(**{name: "fancy"})

    @pytest.mark.parametrize(
        ("values", "expected"),
        [
            ({"d_model": 512.0}, "d_model must be int. Received: d_model=512.0 of type float"),
            ({"d_model": "512"}, "d_model must be int. Received: d_model='512' of type str"),
            ({"num_heads": True}, "num_heads must be int. Received: num_heads=True of type bool"),
            ({"dropout_rate": True}, "dropout_rate must be float. Received: dropout_rate=True of type bool"),
            ({"norm_first": 1}, "norm_first must be bool. Received: norm_first=1 of type int"),
            ({"dropout_rate": None}, "dropout_rate must be float. Received: dropout_rate=None of type NoneType"),
        ],
    )
    def test_types(self, values, expected):
        with pytest.raises(ValueError, match=expected):
            TransformerConfig(**values)

    def test_a_whole_number_may_stand_for_a_float(self):
        config = TransformerConfig(dropout_rate=0)
        assert isinstance(config.dropout_rate, float)

    @pytest.mark.parametrize(("d_model", "num_heads", "advice"), [(100, 8, 96), (3, 8, 8), (126, 4, 128)])
    def test_d_model_is_divisible_by_num_heads(self, d_model, num_heads, advice):
        expected = (
            f"d_model must be divisible by num_heads. Received: d_model={d_model}, num_heads={num_heads}. "
            f"Choose d_model={advice}, or another value of num_heads"
        )
        with pytest.raises(ValueError, match=expected):
            TransformerConfig(d_model=d_model, num_heads=num_heads)
        TransformerConfig(d_model=advice, num_heads=num_heads)

    def test_a_head_may_have_another_size(self):
        assert TransformerConfig(d_model=512, num_heads=8).head_size == 64
        assert TransformerConfig(d_model=512, num_heads=6, head_dim=64).head_size == 64  # mT5-small

    def test_num_heads_is_divisible_by_num_key_value_heads(self):
        expected = (
            "divisible by num_key_value_heads. Received: num_heads=8, num_key_value_heads=3. Choose a divisor of 8"
        )
        with pytest.raises(ValueError, match=expected):
            TransformerConfig(num_key_value_heads=3)
        assert TransformerConfig(num_key_value_heads=2).num_key_value_heads == 2

    def test_a_shallow_decoder_leaves_its_parameters_to_the_encoder(self):
        for name in ("small", "base"):
            same, shallow = (TransformerConfig.of_size(size) for size in (name, f"{name}-shallow-decoder"))
            assert shallow.num_decoder_layers == 1
            assert shallow.num_encoder_layers == 2 * same.num_encoder_layers
            depths = {"num_encoder_layers": same.num_encoder_layers, "num_decoder_layers": same.num_decoder_layers}
            assert shallow.replace(**depths) == same

    def test_sinusoids_need_an_even_d_model_and_learned_positions_do_not(self):
        expected = r"Sinusoidal positions need an even d_model: .* Received: d_model=63. Choose d_model=64, or"
        with pytest.raises(ValueError, match=expected):
            TransformerConfig(d_model=63, num_heads=3)
        with pytest.raises(ValueError, match=expected):
            TransformerConfig(d_model=63, num_heads=3, positional_encoding="sinusoidal_halves")
        assert TransformerConfig(d_model=63, num_heads=3, positional_encoding="learned").d_model == 63

    def test_positions_are_counted_from_0_or_later(self):
        with pytest.raises(ValueError, match="first_position must be at least 0. Received: first_position=-1. Pass 0"):
            TransformerConfig(first_position=-1)
        assert TransformerConfig(first_position=2).first_position == 2

    @pytest.mark.parametrize("kind", ["learned", "rotary"])
    def test_only_sinusoids_have_a_number_of_the_first_position(self, kind):
        for sinusoids in ("sinusoidal", "sinusoidal_halves"):
            assert TransformerConfig(first_position=2, positional_encoding=sinusoids).first_position == 2
        with pytest.raises(ValueError, match=f'Received: first_position=2, positional_encoding="{kind}". Leave it out'):
            TransformerConfig(first_position=2, positional_encoding=kind)

    def test_rotary_positions_need_heads_of_an_even_size(self):
        expected = r"so d_model / num_heads must be even. Received: d_model=15, num_heads=3. Choose d_model=18, or"
        with pytest.raises(ValueError, match=expected):
            TransformerConfig(d_model=15, num_heads=3, positional_encoding="rotary")
        TransformerConfig(d_model=18, num_heads=3, positional_encoding="rotary")
        expected = r"so head_dim must be even. Received: head_dim=5. Choose head_dim=6"
        with pytest.raises(ValueError, match=expected):
            TransformerConfig(d_model=18, num_heads=3, head_dim=5, positional_encoding="rotary")

    @pytest.mark.parametrize("depth", ["shared", "adaptive"])
    def test_the_steps_of_shared_layers_need_an_even_d_model(self, depth):
        expected = f'Received: depth="{depth}", d_model=63. Choose d_model=64, or depth="stacked"'
        with pytest.raises(ValueError, match=expected):
            TransformerConfig(d_model=63, num_heads=3, positional_encoding="alibi", depth=depth)

    @pytest.mark.parametrize("value", [-0.1, float("inf")])
    def test_a_ponder_cost_is_finite_and_no_reward(self, value):
        with pytest.raises(ValueError, match=f"at least 0 and finite. Received: ponder_cost={value}. Pass 0 for no"):
            TransformerConfig(ponder_cost=value)

    def test_only_learned_positions_bound_a_sequence(self):
        assert TransformerConfig(max_length=7).longest_sequence is None
        assert TransformerConfig(max_length=7, positional_encoding="learned").longest_sequence == 7

    def test_a_three_way_tie_needs_one_vocabulary(self):
        expected = (
            'embedding_tying="all" needs one shared vocabulary. '
            "Received: source_vocab_size=7, target_vocab_size=11. "
            'Share the vocabulary, or choose embedding_tying="target"'
        )
        with pytest.raises(ValueError, match=expected):
            TransformerConfig(source_vocab_size=7, target_vocab_size=11)
        TransformerConfig(source_vocab_size=7, target_vocab_size=11, embedding_tying="target")

    @pytest.mark.parametrize("ids", [(2, 1, 2), (0, 0, 0), (-1, 1, 2), (0, -1, 2), (0, 1, -1)])
    def test_padding_is_not_the_end(self, ids):
        pad, start, end = ids
        expected = (
            "pad_id, start_id and end_id must be at least 0, and pad_id must differ from end_id. "
            f"Received: pad_id={pad}, start_id={start}, end_id={end}"
        )
        with pytest.raises(ValueError, match=expected):
            TransformerConfig(pad_id=pad, start_id=start, end_id=end)

    @pytest.mark.parametrize("start", [0, 2])
    def test_the_start_may_be_the_id_of_padding_or_of_the_end(self, start):
        assert TransformerConfig(pad_id=0, start_id=start, end_id=2).start_id == start


class TestTrainingConfig:
    def test_the_defaults_are_the_papers(self):
        config = TrainingConfig()
        assert (config.beta_1, config.beta_2, config.adam_epsilon) == (0.9, 0.98, 1e-9)
        assert (config.label_smoothing, config.warmup_steps) == (0.1, 4000)
        assert (config.max_epochs, config.max_steps, config.max_minutes) == (None, None, None)
        assert (config.label_smoothing_form, config.learning_rate_scale) == ("all", 1.0)
        assert (config.optimizer, config.weight_decay, config.gradient_clip_norm) == ("adam", 0.0, None)
        assert (config.schedule, config.learning_rate, config.final_learning_rate) == ("equation_3", None, 0.0)

    def test_without_options_a_run_learns_subwords_of_both_languages_and_keeps_the_best_weights_by_loss(self):
        config = TrainingConfig()
        assert (config.tokenizer, config.vocab_size, config.shared_vocabulary) == ("bpe", 8000, True)
        assert (config.max_length, config.tokens_per_batch, config.batch_size_multiple) == (128, 4096, 1)
        assert (config.gradient_accumulation_steps, config.precision, config.seed) == (1, "auto", 1)
        assert (config.monitor, config.patience, config.validation_steps) == ("loss", 10, None)
        assert config.least_improvement == 0
        assert (config.scored_sources, config.bleu_tokenizer) == (None, None)
        assert (config.ema_decay, config.keep_weights, config.checkpoint_minutes) == (0.0, 5, 2.0)
        assert (config.train_embeddings, config.mask_whole_words) == (True, False)

    def test_without_options_a_run_samples_and_joins_nothing_and_reads_each_pair_once(self):
        config = TrainingConfig()
        assert (config.bpe_dropout, config.unigram_alpha, config.r_drop, config.guided_alignment) == (0, 0, 0, 0)
        assert (config.corpus_weights, config.corpus_temperature, config.tags_before) == ("", 1.0, None)
        assert (config.source_tokenizer, config.target_tokenizer, config.user_symbols) == (None, None, "")
        assert (config.word_level, config.word_level_teacher) == (0, None)
        assert not config.rematerialize

    @pytest.mark.parametrize("name", ["tiny", "small", "small-shallow-decoder", "tiny-shallow-decoder"])
    def test_a_small_size_suits_some_ten_thousand_pairs(self, name):
        config = TrainingConfig.of_size(name)
        assert (config.vocab_size, config.tokens_per_batch, config.max_length) == (4000, 4096, 128)
        assert (config.warmup_steps, config.learning_rate_scale, config.ema_decay) == (800, 1.2, 0.999)

    @pytest.mark.parametrize("name", ["base", "big", "base-shallow-decoder"])
    def test_a_large_size_has_the_papers_vocabulary_and_batches(self, name):
        config = TrainingConfig.of_size(name)
        assert (config.vocab_size, config.tokens_per_batch, config.max_length) == (37000, 25000, 256)
        assert (config.warmup_steps, config.learning_rate_scale, config.ema_decay) == (4000, 1.0, 0.0)

    @pytest.mark.parametrize(
        "name",
        [
            "vocab_size",
            "max_length",
            "tokens_per_batch",
            "warmup_steps",
            "learning_rate_scale",
            "adam_epsilon",
            "gradient_accumulation_steps",
            "patience",
            "max_epochs",
            "max_steps",
            "max_minutes",
            "validation_steps",
            "batch_size_multiple",
            "checkpoint_minutes",
            "learning_rate",
            "gradient_clip_norm",
        ],
    )
    def test_amounts_are_positive(self, name):
        with pytest.raises(ValueError, match=f"{name} must be greater than 0 and finite. Received: {name}=0"):
            TrainingConfig(**{name: 0})

    @pytest.mark.parametrize("name", ["bpe_dropout", "label_smoothing", "beta_1", "beta_2", "ema_decay"])
    @pytest.mark.parametrize("value", [-0.1, 1.0])
    def test_rates_are_shares(self, name, value):
        with pytest.raises(ValueError, match=f"{name} must be at least 0 and below 1. Received: {name}={value}"):
            TrainingConfig(**{name: value})

    @pytest.mark.parametrize(
        ("name", "choices"),
        [
            ("tokenizer", "bpe, unigram, words, symbols"),
            ("label_smoothing_form", "all, others"),
            ("bleu_tokenizer", "13a, intl, zh, ja-mecab, ko-mecab, char, flores101, flores200, none"),
            ("precision", "auto, float32, mixed_bfloat16, mixed_float16"),
            ("optimizer", "adam, adamw, adafactor"),
            ("schedule", "equation_3, constant, inverse_sqrt, linear, cosine"),
            ("tags_before", "source, target"),
        ],
    )
    def test_choices(self, name, choices):
        with pytest.raises(ValueError, match=f"{name} must be one of {choices}. Received: {name}='other'"):
            TrainingConfig(**{name: "other"})

    def test_types(self):
        expected = "max_steps must be int or NoneType. Received: max_steps=1.5 of type float"
        with pytest.raises(ValueError, match=expected):
            TrainingConfig(max_steps=1.5)
        assert isinstance(TrainingConfig(max_minutes=5).max_minutes, float)

    def test_a_batch_holds_the_longest_sentence(self):
        expected = (
            "tokens_per_batch must hold at least one sentence of max_length tokens. "
            "Received: tokens_per_batch=127, max_length=128. Raise tokens_per_batch or lower max_length"
        )
        with pytest.raises(ValueError, match=expected):
            TrainingConfig(tokens_per_batch=127, max_length=128)
        TrainingConfig(tokens_per_batch=128, max_length=128)

    def test_a_batch_that_r_drop_reads_twice_holds_the_longest_sentence_twice(self):
        expected = "sentence of max_length tokens twice, because r_drop reads it twice. Received: tokens_per_batch=255"
        with pytest.raises(ValueError, match=expected):
            TrainingConfig(tokens_per_batch=255, max_length=128, r_drop=5)
        assert TrainingConfig(tokens_per_batch=256, max_length=128, r_drop=5).tokens_of_pairs == 128

    @pytest.mark.parametrize("name", SIZES)
    def test_every_model_size_has_training_settings(self, name):
        config = TrainingConfig.of_size(name, seed=7)
        assert config.seed == 7
        assert config.replace(seed=TrainingConfig().seed) != TrainingConfig()

    def test_an_unknown_size(self):
        with pytest.raises(ValueError, match=r"There is no size 'huge'. Choose one of tiny, small, base, big"):
            TrainingConfig.of_size("huge")

    @pytest.mark.parametrize("name", SIZES)
    def test_the_warmup_of_a_size_may_be_fitted_but_a_chosen_one_may_not(self, name):
        size = TrainingConfig.of_size(name, max_steps=100)
        assert size.fit_warmup
        assert size.replace(max_steps=7).fit_warmup
        for chosen in ({"warmup_steps": 50}, {"learning_rate_scale": 0.5}, {"fit_warmup": False}):
            assert not TrainingConfig.of_size(name, **chosen).fit_warmup
            assert not size.replace(**chosen).fit_warmup
        assert size.replace(warmup_steps=50, fit_warmup=True).fit_warmup
        assert not TrainingConfig().fit_warmup

    @pytest.mark.parametrize("name", ["weight_decay", "least_improvement"])
    @pytest.mark.parametrize("value", [-0.5, math.inf, math.nan])
    def test_some_amounts_may_be_zero_but_not_below(self, name, value):
        with pytest.raises(ValueError, match=f"{name} must be at least 0 and finite. Received: {name}={value}"):
            TrainingConfig(**{name: value})

    @pytest.mark.parametrize(
        ("fields", "told"),
        [
            (
                {"weight_decay": 0.1},
                "weight_decay must be above 0 with .* adamw, .* optimizer='adam', weight_decay=0.1",
            ),
            ({"optimizer": "adamw"}, "weight_decay must be above 0 with .* optimizer='adamw', weight_decay=0.0"),
            ({"optimizer": "adafactor", "weight_decay": 0.1}, "0 with another one. Received: optimizer='adafactor'"),
            ({"optimizer": "adafactor", "beta_1": 0.8}, "has no beta_1, beta_2, adam_epsilon. Received: beta_1=0.8"),
        ],
    )
    def test_an_optimizer_takes_its_own_fields(self, fields, told):
        with pytest.raises(ValueError, match=told):
            TrainingConfig(**fields)

    @pytest.mark.parametrize(
        ("fields", "told"),
        [
            ({"learning_rate": 0.1}, "equation_3 has the peak .* Received: learning_rate=0.1. Leave it out, or choose"),
            ({"schedule": "constant"}, "constant needs the peak of the rate. Received: learning_rate=None. Give"),
            (
                {"schedule": "constant", "learning_rate": 0.1, "learning_rate_scale": 1.2},
                "is a factor of the schedule equation_3. Received: schedule='constant', learning_rate_scale=1.2",
            ),
            ({"schedule": "linear", "learning_rate": 0.1}, "linear ends at .* neither max_steps nor max_epochs. Give"),
            ({"schedule": "cosine", "learning_rate": 0.1, "max_minutes": 5}, "cosine ends at .* neither max_steps nor"),
            (
                {"schedule": "inverse_sqrt", "learning_rate": 0.1, "final_learning_rate": 0.05},
                "is of the schedules linear and cosine. Received: schedule='inverse_sqrt', final_learning_rate=0.05",
            ),
            *(
                (
                    {"schedule": "linear", "learning_rate": 0.1, "max_steps": 7, "final_learning_rate": final},
                    f"at least 0 and below learning_rate. Received: final_learning_rate={final}, learning_rate=0.1",
                )
                for final in (0.1, -0.1, math.nan)
            ),
        ],
    )
    def test_a_schedule_takes_its_own_fields(self, fields, told):
        with pytest.raises(ValueError, match=told):
            TrainingConfig(**fields)

    def test_a_schedule_with_a_peak_leaves_the_factor_of_a_size_and_its_fitted_warmup(self):
        size = TrainingConfig.of_size("small", max_epochs=3)
        for chosen in (
            size.replace(schedule="cosine", learning_rate=0.1),
            TrainingConfig.of_size("small", max_epochs=3, schedule="cosine", learning_rate=0.1),
        ):
            assert (chosen.learning_rate_scale, chosen.learning_rate) == (1.0, 0.1)
            assert (chosen.warmup_steps, chosen.fit_warmup) == (800, True)
        assert chosen.replace(schedule="equation_3").learning_rate is None
        with pytest.raises(ValueError, match="learning_rate_scale is a factor of the schedule equation_3"):
            size.replace(schedule="cosine", learning_rate=0.1, learning_rate_scale=1.2)

    @pytest.mark.parametrize(("task", "smoothing"), [("translate", 0.1), ("language-model", 0.0), ("classify", 0.1)])
    def test_language_models_are_trained_without_label_smoothing(self, task, smoothing):
        assert TrainingConfig.of_size("tiny", task=task).label_smoothing == smoothing
        assert TrainingConfig.of_size("tiny", task=task, label_smoothing=0.3).label_smoothing == 0.3

    def test_no_weights_need_be_kept_but_fewer_than_none_cannot(self):
        assert TrainingConfig(keep_weights=0).keep_weights == 0
        with pytest.raises(ValueError, match="keep_weights must be at least 0 and finite. Received: keep_weights=-1"):
            TrainingConfig(keep_weights=-1)

    @pytest.mark.parametrize(("monitor", "fewest"), [("loss", 0), ("bleu", 1), ("word_error_rate", 1)])
    def test_a_monitor_of_translations_needs_some(self, monitor, fewest):
        assert TrainingConfig(monitor=monitor, scored_sources=fewest).scored_sources == fewest
        with pytest.raises(ValueError, match=f"Received: scored_sources={fewest - 1}, monitor='{monitor}'"):
            TrainingConfig(monitor=monitor, scored_sources=fewest - 1)

    @pytest.mark.parametrize("value", [float("nan"), float("inf")])
    def test_amounts_are_finite(self, value):
        with pytest.raises(ValueError, match="max_minutes must be greater than 0 and finite"):
            TrainingConfig(max_minutes=value)


class TestDecodingConfig:
    def test_the_defaults_are_the_papers(self):
        config = DecodingConfig()
        assert (config.beam_size, config.length_penalty, config.max_extra_length) == (4, 0.6, 50)
        assert (config.beam_rules, config.first_id, config.max_length) == ("paper", None, None)
        assert (config.early_stopping, config.forced_end, config.renormalize) == (False, False, False)
        assert (config.min_length, config.no_repeat_ngram_size) == (0, 0)

    @pytest.mark.parametrize(
        "name", ["beam_size", "max_extra_length", "max_length", "max_source_length", "max_sentence_length"]
    )
    def test_sizes_are_positive(self, name):
        with pytest.raises(ValueError, match=f"{name} must be greater than 0 and finite. Received: {name}=0"):
            DecodingConfig(**{name: 0})

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("length_penalty", -0.5),
            ("length_penalty", float("nan")),
            ("min_length", -1),
            ("no_repeat_ngram_size", -1),
            ("short_ratio", -0.1),
            ("short_ratio", float("inf")),
        ],
    )
    def test_amounts_are_not_negative(self, name, value):
        with pytest.raises(ValueError, match=f"{name} must be at least 0 and finite. Received: {name}={value}. Pass 0"):
            DecodingConfig(**{name: value})
        assert getattr(DecodingConfig(**{name: 0}), name) == 0

    def test_a_length_penalty_that_makes_all_scores_zero_is_refused(self):
        assert DecodingConfig(length_penalty=10).length_penalty == 10.0
        with pytest.raises(ValueError, match="length_penalty must be at most 10. Received: length_penalty=10.5. Value"):
            DecodingConfig(length_penalty=10.5)

    def test_the_least_length_leaves_room_for_the_end(self):
        assert DecodingConfig(min_length=7, max_length=8).min_length == 7
        with pytest.raises(ValueError, match="counts the end, too. Received: min_length=8, max_length=8. Change one"):
            DecodingConfig(min_length=8, max_length=8)

    def test_lengths_of_texts_come_from_the_run_where_the_search_says_nothing(self):
        run = DecodingConfig(beam_size=8, max_source_length=60, max_sentence_length=110, short_ratio=0.6)
        assert DecodingConfig().completed(run) == run.replace(beam_size=4)
        assert DecodingConfig(max_source_length=200, short_ratio=0).completed(run) == run.replace(
            beam_size=4, max_source_length=200, short_ratio=0.0
        )

    def test_tags_come_from_the_run_where_the_search_says_nothing(self):
        run = DecodingConfig(beam_size=8, tags="<2es> <2fr>", untagged=True, tags_before="target")
        assert DecodingConfig(beam_size=1).completed(run) == run.replace(beam_size=1)
        own = DecodingConfig(tags="<2de>", untagged=False, tags_before="source")
        assert own.completed(run) == own

    def test_without_a_run_nothing_is_known_of_its_texts(self):
        config = DecodingConfig()
        assert (config.max_source_length, config.max_sentence_length, config.short_ratio) == (None, None, None)
        assert (config.tags, config.untagged, config.tags_before) == (None, None, None)

    @pytest.mark.parametrize(
        ("name", "choices"), [("beam_rules", "paper, transformers, opennmt"), ("tags_before", "source, target")]
    )
    def test_choices(self, name, choices):
        with pytest.raises(ValueError, match=f"{name} must be one of {choices}. Received: {name}='other'"):
            DecodingConfig(**{name: "other"})

    @pytest.mark.parametrize(
        ("lengths", "line", "source"),
        [
            ({}, 64, 256),
            ({"max_sentence_length": 20}, 20, 20),
            ({"max_sentence_length": 200}, 64, 200),
            ({"max_source_length": 9}, 9, 9),
            ({"max_source_length": 9, "max_sentence_length": 20}, 9, 20),
            ({"max_source_length": 30, "max_sentence_length": 20}, 30, 30),
        ],
    )
    def test_a_sentence_may_have_at_least_as_many_tokens_as_a_line(self, lengths, line, source):
        config = DecodingConfig(**lengths)
        assert (config.longest_line, config.longest_source) == (line, source)


both_classes = pytest.mark.parametrize("config_class", [TransformerConfig, TrainingConfig])


class TestDictionariesAndFiles:
    @both_classes
    def test_frozen(self, config_class):
        with pytest.raises(dataclasses.FrozenInstanceError):
            config_class().max_length = 3

    @both_classes
    def test_a_dictionary_and_back(self, config_class):
        config = config_class(max_length=97)
        assert config_class.from_dict(config.to_dict()) == config != config_class()

    @both_classes
    def test_an_unknown_field(self, config_class):
        name = config_class.__name__
        expected = rf"{name} has no field 'bar', 'foo'. Its fields are: .*max_length.*Remove or rename"
        with pytest.raises(ValueError, match=expected):
            config_class.from_dict({"foo": 1, "max_length": 128, "bar": 2})

    def test_a_field_that_resembles_the_unknown_one_is_named(self):
        with pytest.raises(ValueError, match=r"unknown ones. Did you mean 'max_minutes', 'warmup_steps'\?$"):
            TrainingConfig.from_dict({"warmup_step": 1, "max_minute": 2})
        with pytest.raises(ValueError, match=r"Remove or rename the unknown ones.$"):
            TrainingConfig.from_dict({"xyz": 1})

    def test_replace_checks_the_copy(self):
        config = TransformerConfig()
        assert config.replace(d_ff=7).d_ff == 7
        assert config.d_ff == 2048
        with pytest.raises(ValueError, match="divisible by num_heads"):
            config.replace(num_heads=7)
        with pytest.raises(ValueError, match="has no field 'heads'"):
            config.replace(heads=4)

    @pytest.mark.parametrize("suffix", [".json", ".yaml", ".yml"])
    @pytest.mark.parametrize(
        "config",
        [
            TransformerConfig.of_size("tiny", norm_first=True, embedding_tying="none"),
            DecodingConfig(beam_size=7, length_penalty=1.5),
            TrainingConfig(max_minutes=2.5, max_steps=7, adam_epsilon=1e-9, precision="mixed_bfloat16"),
        ],
        ids=lambda config: type(config).__name__,
    )
    def test_a_file_and_back(self, config, suffix, tmp_path):
        path = tmp_path / f"config{suffix}"
        config.save(path)
        assert type(config).load(path) == config
        assert [file.name for file in tmp_path.iterdir()] == [path.name]

    def test_a_json_file_is_json(self, tmp_path):
        TransformerConfig(d_ff=7).save(tmp_path / "config.json")
        assert json.loads((tmp_path / "config.json").read_text())["d_ff"] == 7

    def test_a_number_written_as_1e_9_is_a_number(self, tmp_path):
        # YAML 1.1 wants a point in it; people and json.dumps write none.
        for name, text in (("a.yaml", "adam_epsilon: 1e-9\n"), ("a.json", '{"adam_epsilon": 1e-09}')):
            (tmp_path / name).write_text(text)
            assert TrainingConfig.load(tmp_path / name).adam_epsilon == 1e-9

    @pytest.mark.parametrize(
        ("text", "number"), [("1E-9", 1e-9), ("2e3", 2000.0), ("1.5e3", 1500.0), ("+5e-1", 0.5), (".5e1", 5.0)]
    )
    def test_a_number_may_be_written_in_each_form_that_json_and_people_have(self, text, number, tmp_path):
        (tmp_path / "a.yaml").write_text(f"value: {text}\n")
        assert read_mapping(tmp_path / "a.yaml") == {"value": number}

    def test_a_yaml_file_has_the_fields_in_their_order(self, tmp_path):
        DecodingConfig().save(tmp_path / "a.yaml")
        names = [line.split(":")[0] for line in (tmp_path / "a.yaml").read_text().splitlines()]
        assert names == [field.name for field in dataclasses.fields(DecodingConfig)]

    def test_a_crash_while_saving_leaves_the_old_file(self, tmp_path, monkeypatch):
        path = tmp_path / "config.json"
        TransformerConfig(d_ff=7).save(path)
        write_text = pathlib.Path.write_text

        def disk_full(self, text, **options):
            write_text(self, text[: len(text) // 2], **options)
            raise OSError("no space left")

        monkeypatch.setattr(pathlib.Path, "write_text", disk_full)
        with pytest.raises(OSError, match="no space left"):
            TransformerConfig(d_ff=11).save(path)
        assert TransformerConfig.load(path).d_ff == 7

    def test_other_endings_are_refused(self, tmp_path):
        with pytest.raises(ValueError, match=r"file must end in .json, .yaml or .yml. Received: .*config.toml"):
            read_mapping(tmp_path / "config.toml")

    @pytest.mark.parametrize("name", ["config.json", "config.yaml"])
    def test_a_broken_file(self, name, tmp_path):
        (tmp_path / name).write_text("{d_model: [")
        with pytest.raises(ValueError, match=rf"{name} is not valid {name[7:]}: (.|\n)*Correct the file"):
            TransformerConfig.load(tmp_path / name)

    def test_a_file_that_cannot_be_read(self, tmp_path):
        with pytest.raises(
            FileNotFoundError, match=r"There is no file .*none.yaml. Name a JSON or YAML file that exists"
        ):
            read_mapping(tmp_path / "none.yaml")
        (tmp_path / "folder.json").mkdir()
        with pytest.raises(OSError, match=r"folder.json cannot be read: Is a directory. Name a JSON or YAML file that"):
            read_mapping(tmp_path / "folder.json")
        (tmp_path / "latin.yaml").write_bytes("größe: 1".encode("latin-1"))
        with pytest.raises(ValueError, match=r"latin.yaml is not UTF-8: .* Convert the file."):
            read_mapping(tmp_path / "latin.yaml")

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("warmup_step: 1\n", r"TrainingConfig has no field 'warmup_step'\. .* Did you mean 'warmup_steps'\?$"),
            ("{7: 1, foo: 2}\n", r"TrainingConfig has no field '7', 'foo'\. Its fields are: tokenizer, "),
            ("beta_1: 1.5\n", r"beta_1 must be at least 0 and below 1\. Received: beta_1=1\.5\.$"),
            ("max_length: [7]\n", r"max_length must be int\. Received: max_length=\[7\] of type list\.$"),
            (f"max_minutes: {10**400}\n", r"max_minutes must be float or NoneType\. Received: max_minutes=10000"),
        ],
    )
    @pytest.mark.parametrize("name", ["training.yaml", "training.json"])
    def test_a_mistake_in_a_file_is_told_with_the_files_name(self, name, text, message, tmp_path):
        path = tmp_path / name
        path.write_text(text)
        with pytest.raises(ValueError, match=f"^{re.escape(str(path))}: {message}"):
            TrainingConfig.load(path)

    def test_a_value_that_yaml_refuses_is_told_with_the_files_name(self, tmp_path):
        (tmp_path / "a.yaml").write_text("seed: 2026-13-01\n")  # YAML takes it for a date
        with pytest.raises(ValueError, match=r"a\.yaml is not valid yaml: month must be in 1\.\.12\. Correct the file"):
            read_mapping(tmp_path / "a.yaml")

    def test_a_list_is_no_configuration(self, tmp_path):
        (tmp_path / "config.yaml").write_text("- d_model\n")
        with pytest.raises(ValueError, match=r"must contain a mapping of names to values. Received: list"):
            TransformerConfig.load(tmp_path / "config.yaml")


def test_parts_are_mappings(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("training: {max_steps: 7}\ncorpus: cmudict\n")
    parts = read_parts(file, ["training", "transformer"], ["corpus"])
    assert parts == {"training": {"max_steps": 7}, "transformer": {}, "corpus": "cmudict"}
    with pytest.raises(ValueError, match="has the unknown part corpus. Put every field under one of: training, transf"):
        read_parts(file, ["training", "transformer"])
    with pytest.raises(ValueError, match="under one of: trainings, transformer. Did you mean 'trainings'?"):
        read_parts(file, ["trainings", "transformer"], ["corpus"])
    file.write_text("training:\n  # nothing yet\n")
    assert read_parts(file, ["training"]) == {"training": {}}
    file.write_text("training:\n  - max_steps: 7\n")
    with pytest.raises(ValueError, match=r"mapping of fields to values under training. Received: \[{'max_steps': 7}\]"):
        read_parts(file, ["training"])


def test_texts_may_be_as_long_as_the_learned_positions_and_no_longer():
    learned = TransformerConfig(positional_encoding="learned", max_length=64)
    check_positions(learned, TrainingConfig(max_length=64))
    with pytest.raises(ValueError, match="has 64 learned positions, and training takes pairs of up to 65 tokens"):
        check_positions(learned, TrainingConfig(max_length=65))
    check_positions(TransformerConfig(max_length=64), TrainingConfig(max_length=65))  # sinusoids have no end


@pytest.mark.parametrize("alpha", [-0.1, math.inf, math.nan])
def test_the_alpha_of_unigram_subwords_is_a_number_from_0_up(alpha):
    assert TrainingConfig(unigram_alpha=3.0).unigram_alpha == 3.0
    with pytest.raises(
        ValueError, match="unigram_alpha must be a finite number of at least 0. Received: unigram_alpha"
    ):
        TrainingConfig(unigram_alpha=alpha)


@pytest.mark.parametrize("task", ["classify", "tag", "masked-language-model"])
@pytest.mark.parametrize("changes", [{"bpe_dropout": 0.1}, {"unigram_alpha": 0.1}])
def test_only_tasks_whose_outputs_are_texts_divide_texts_anew(task, changes):
    (name,) = changes
    message = f"{name}: only the tasks translate and language-model divide .* Received: the task {task}. Leave it out"
    with pytest.raises(ValueError, match=message):
        check_subword_sampling(task, TrainingConfig(**changes), None)
    check_subword_sampling(task, TrainingConfig(), None)


@pytest.mark.parametrize(
    ("changes", "kinds", "message"),
    [
        (
            {"bpe_dropout": 0.1},
            ("unigram", "unigram"),
            "bpe_dropout is for bpe subwords. Received: bpe_dropout=0.1, and "
            "tokens of the kind unigram. Give unigram_alpha in its place, or train with the tokenizer bpe.$",
        ),
        (
            {"unigram_alpha": 0.5},
            ("bpe",),
            "unigram_alpha=0.5, and tokens of the kind bpe. Give bpe_dropout in its place",
        ),
        (
            {"bpe_dropout": 0.1},
            ("words", "symbols"),
            "of the kind words and symbols. Leave it out, or train with the tokenizer bpe.$",
        ),
        ({"bpe_dropout": 0.1, "unigram_alpha": 0.5}, ("bpe", "bpe"), "unigram_alpha is for unigram subwords"),
    ],
)
def test_tokens_that_cannot_be_divided_anew_are_told(changes, kinds, message):
    with pytest.raises(ValueError, match=message):
        check_subword_sampling("translate", TrainingConfig(**changes), kinds)


def test_one_side_that_can_be_divided_anew_is_enough():
    training = TrainingConfig(bpe_dropout=0.1, unigram_alpha=0.2)
    for kinds in (None, ("bpe", "unigram")):
        check_subword_sampling("translate", training, kinds)
    check_subword_sampling("translate", TrainingConfig(bpe_dropout=0.1), ("words", "bpe"))


@pytest.mark.parametrize("task", ["classify", "tag", "language-model", "masked-language-model"])
def test_only_a_translator_learns_word_alignments(task):
    message = f"models with an attention from the target .* those of the task translate. Received: the task {task}."
    with pytest.raises(ValueError, match=message):
        check_guided_alignment(task, TrainingConfig(guided_alignment=0.1))
    check_guided_alignment(task, TrainingConfig())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"r_drop": 5.0}, "does not go with r_drop: .*guided_alignment=0.1, r_drop=5.0. Leave one of them out"),
        ({"bpe_dropout": 0.1}, "does not go with bpe_dropout: .*guided_alignment=0.1, bpe_dropout=0.1. Leave one"),
        ({"unigram_alpha": 0.2}, "does not go with unigram_alpha: "),
        ({"max_length": 65_537, "tokens_per_batch": 65_537}, "up to 65,536 tokens. Received: max_length=65537"),
    ],
)
def test_what_word_alignments_do_not_go_with_is_told(changes, message):
    with pytest.raises(ValueError, match=message):
        check_guided_alignment("translate", TrainingConfig(guided_alignment=0.1, **changes))
    check_guided_alignment("translate", TrainingConfig(**changes))


def test_alignments_and_their_weight_go_together():
    for weight in (0.0, 0.1):
        check_aligned(TrainingConfig(guided_alignment=weight), is_aligned=weight > 0)
    with pytest.raises(ValueError, match="guided_alignment=0.1 learns word alignments, and the corpus has none. Give"):
        check_aligned(TrainingConfig(guided_alignment=0.1), is_aligned=False)
    with pytest.raises(ValueError, match="nothing would be learned .* because guided_alignment is 0. Give it a weight"):
        check_aligned(TrainingConfig(), is_aligned=True)


@pytest.mark.parametrize("weight", [-0.1, math.inf, math.nan])
def test_the_weight_of_word_alignments_is_a_number_from_0_up(weight):
    with pytest.raises(ValueError, match="guided_alignment must be a finite number of at least 0. Received: guided_al"):
        TrainingConfig(guided_alignment=weight)


def test_only_translators_have_translations_to_score():
    check_scores("translate", "bleu", 5)
    for none in (0, None):
        check_scores("tag", "accuracy", none)
    message = "task tag gives no translations to score. .* scored_sources=5. Choose monitor from loss, perplexity, acc"
    with pytest.raises(ValueError, match=message):
        check_scores("tag", "accuracy", 5)
    with pytest.raises(ValueError, match="gives no translations to score. Received: monitor='ter', scored_sources=N"):
        check_scores("tag", "ter", None)


def test_labels_are_padded_with_0_whatever_the_padding_of_texts_is():
    assert TransformerConfig(pad_id=3, task="tag", num_decoder_layers=0).target_pad_id == 0
    assert TransformerConfig(pad_id=3).target_pad_id == 3
