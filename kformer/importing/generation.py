"""The search of a model of Hugging Face: the fields of its generation_config.json, or of the older config.json."""

import pathlib

from kformer.config import DecodingConfig
from kformer.importing.fields import Fields

# Fields that change what a search finds, with the values that change nothing. None of them has a counterpart here.
_WITHOUT_EFFECT = {
    "repetition_penalty": 1.0,
    "encoder_repetition_penalty": 1.0,
    "encoder_no_repeat_ngram_size": 0,
    "num_beam_groups": 1,
    "diversity_penalty": 0.0,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
    "force_words_ids": None,
    "constraints": None,
    "sequence_bias": None,
    "guidance_scale": None,
    "penalty_alpha": None,
    "dola_layers": None,
    "watermarking_config": None,
    "exponential_decay_length_penalty": None,
    "stop_strings": None,
}
_OLD_FIRST = "force_bos_token_to_be_generated"  # of BART, before there was forced_bos_token_id
# Of a translation, where the files do not say: transformers stops after 20 tokens then, which cuts translations off.
# And of a line that is translated at once, as transformers does with all lines that the model has positions for.
_LONGEST = 512


def read_decoding(folder: pathlib.Path, config: Fields, max_positions: int | None = None) -> DecodingConfig:
    """The search that a folder asks for.

    Args:
        folder: Of the model. Its generation_config.json counts, if there is one.
        config: Its config.json.
        max_positions: The largest number of positions of a text; None: there is no limit.

    Raises:
        ValueError: A field asks for something that kformer's searches do not do.
    """
    fields = _search_fields(folder, config)
    # The start token counts in lengths, but is no new token. Numbers of new tokens count where there are both.
    longest = fields.get("max_new_tokens", fields.get("max_length", _LONGEST) - 1)
    least = fields.get("min_new_tokens", fields.get("min_length", 0) - 1)
    if max_positions is not None:
        longest = min(longest, max_positions)
    end_id, begins_with = config.id("eos_token_id"), config.get("bos_token_id")
    _check_repeated(fields, config.get("decoder_start_token_id") == end_id)
    return DecodingConfig(
        beam_size=fields.get("num_beams", 1),
        length_penalty=float(fields.get("length_penalty", 1.0)),
        max_extra_length=longest,
        max_length=longest,
        beam_rules="transformers",
        first_id=fields.get("forced_bos_token_id", begins_with if fields.get(_OLD_FIRST) else None),
        early_stopping=_stops_early(fields),
        forced_end=_is_forced(fields, end_id),
        renormalize=bool(fields.get("renormalize_logits", False)),
        min_length=max(0, least),
        no_repeat_ngram_size=fields.get("no_repeat_ngram_size", 0),
        max_source_length=min(max_positions or config.get("max_position_embeddings", _LONGEST), _LONGEST),
    )


def read_continuation(folder: pathlib.Path, config: Fields, longest: int) -> DecodingConfig:
    """The search of a language model that a folder asks for.

    Whether and how tokens are drawn at random is left out: with kformer, each request says so.

    Args:
        folder: Of the model. Its generation_config.json counts, if there is one.
        config: Its config.json.
        longest: The largest number of tokens that the model reads at once.

    Raises:
        ValueError: A field asks for something that kformer's searches do not do.
    """
    fields = _search_fields(folder, config)
    fields.expect("min_new_tokens", None)
    new, whole = fields.get("max_new_tokens"), fields.get("max_length")
    return DecodingConfig(
        beam_size=fields.get("num_beams", 1),
        length_penalty=float(fields.get("length_penalty", 1.0)),
        max_extra_length=new or whole or DecodingConfig.max_extra_length,
        # transformers counts the first token, too: the start token, or that of the prompt.
        max_length=whole - 1 if whole and not new else None,
        beam_rules="transformers",
        early_stopping=_stops_early(fields),
        renormalize=bool(fields.get("renormalize_logits", False)),
        min_length=max(0, fields.get("min_length", 0) - 1),
        no_repeat_ngram_size=fields.get("no_repeat_ngram_size", 0),
        max_source_length=longest,
    )


def _search_fields(folder: pathlib.Path, config: Fields) -> Fields:
    """The fields of generation_config.json, or else of config.json, if kformer's searches can follow them."""
    path = folder / "generation_config.json"
    fields = Fields(path) if path.is_file() else config
    for name, value in _WITHOUT_EFFECT.items():
        if fields.get(name) != []:  # which says nothing
            fields.expect(name, value, default=value)
    for name in ("eos_token_id", "decoder_start_token_id"):
        _check_same_id(name, fields, config)
    _check_forbidden(fields, config)
    return fields


def _stops_early(fields: Fields) -> bool:
    value = fields.get("early_stopping", False)
    if not isinstance(value, bool):  # "never" looks for a better translation until none can be better
        fields.expect("early_stopping", False)
    return value


def _check_forbidden(fields: Fields, config: Fields) -> None:
    """Refuses forbidden tokens other than padding and start, which a search never gives."""
    forbidden = fields.get("bad_words_ids", [])
    start = config.get("decoder_start_token_id", config.get("bos_token_id"))
    never = [[config.get("pad_token_id")], [None if start == config.get("eos_token_id") else start]]
    if any(ids not in never for ids in forbidden):
        raise ValueError(
            f"bad_words_ids in {fields.path} forbids {forbidden!r:.100}. kformer's searches forbid the padding and the "
            "start alone."
        )


def _check_same_id(name: str, fields: Fields, config: Fields) -> None:
    """Refuses a special token of the search that is not the model's: a search has one."""
    given, known = fields.get(name), config.get(name)
    if None in (given, known) or given in (known, [known]):
        return
    raise ValueError(
        f"{name} in {fields.path} is {given!r}, and in {config.path} {known!r}. transformers takes the first one, and "
        "kformer's searches know one such token. Write the same id into both files."
    )


def _is_forced(fields: Fields, end_id: int) -> bool:
    """Whether a translation ends with the end token where it is cut off.

    Raises:
        ValueError: It ends with another token there.
    """
    forced = fields.get("forced_eos_token_id")
    if forced not in (None, end_id, [end_id]):
        raise ValueError(
            f"forced_eos_token_id in {fields.path} is {forced!r}, and the end token is {end_id}. kformer's searches "
            "force that one alone."
        )
    return forced is not None


def _check_repeated(fields: Fields, starts_with_end: bool) -> None:
    """Refuses that no token may come twice where translations start with the end token.

    transformers counts the start, so that it never ends such a translation. kformer's searches do not count it.
    """
    if starts_with_end and fields.get("no_repeat_ngram_size", 0) == 1:
        raise ValueError(
            f"no_repeat_ngram_size in {fields.path} is 1, and the start token is also the end token: transformers "
            "never ends such a translation. Write 0, or at least 2."
        )
