"""Does the end of a long line get lost? Lines of several verses joined by blanks, divided above several lengths.

    python -m benchmarks.quality.paragraphs --precisions float32 int8

Each line is made of k test verses of `bible-en-es`. A cell has the chrF of all lines, the number of words of the
translations divided by that of the references, and the share of lines whose translation `kformer translate` reports as
much too short (`DecodingConfig.short_ratio`). The first length is what kformer had before runs measured their texts.
"""

import argparse
import contextlib
import tempfile
from collections.abc import Iterator

import sacrebleu

from kformer.cli.startup import start_tensorflow
from kformer.config import DecodingConfig
from kformer.data import Pair, load_corpus
from kformer.export.saved_model import export_saved_model
from kformer.inference import Model
from kformer.inference.lines import ShortTranslations
from kformer.presets import find_preset
from kformer.tasks.translator import Translator
from kformer.text.batches import AnswerBatch, answer_all

PRESET = "bible-en-es"


def paragraphs(pairs: list[Pair], joined: int) -> list[Pair]:
    """Lines of `joined` consecutive verses, and their references."""
    groups = [pairs[first : first + joined] for first in range(0, len(pairs), joined)]
    return [(" ".join(source for source, _ in group), " ".join(target for _, target in group)) for group in groups]


@contextlib.contextmanager
def exported(decoding: DecodingConfig, precision: str) -> Iterator[AnswerBatch]:
    """The preset with this search, as an export of this precision computes it."""
    translator = Translator.from_preset(PRESET, decoding)
    with tempfile.TemporaryDirectory() as folder:
        export_saved_model(translator, folder, precision=precision)
        yield Model(folder, threads_per_operation=1)


def cell(translate: AnswerBatch, pairs: list[Pair], short_ratio: float) -> str:
    """chrF, ratio of lengths and share of short translations of these lines."""
    sources = [source.encode() for source, _ in pairs]
    found = answer_all(translate, sources)
    texts, references = [hypotheses[0].text for hypotheses in found], [target for _, target in pairs]
    short = ShortTranslations(short_ratio)
    for source, hypotheses in zip(sources, found, strict=True):
        short(source, hypotheses)
    bleu = sacrebleu.corpus_bleu(texts, [references])
    chrf = sacrebleu.corpus_chrf(texts, [references]).score
    return f"{chrf:.1f}, {bleu.sys_len / bleu.ref_len:.2f}, {short.count / len(pairs):.0%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verses", type=int, default=240)
    parser.add_argument("--joined", nargs="+", type=int, default=[1, 2, 4, 6], help="verses on a line")
    parser.add_argument("--precisions", nargs="+", default=["float32"])
    parser.add_argument("--beam-sizes", nargs="+", type=int, default=[1, 4])
    parser.add_argument("--lengths", nargs="+", type=int, help="by default 256 and the preset's own max_source_length")
    arguments = parser.parse_args()
    own = find_preset(PRESET).decoding_config()
    pairs = load_corpus(PRESET).test[: arguments.verses]
    print(
        "| search, precision | divided above | " + " | ".join(f"{joined} a line" for joined in arguments.joined) + " |"
    )
    print("| --- " * (len(arguments.joined) + 2) + "|")
    for precision in arguments.precisions:
        for beam_size in arguments.beam_sizes:
            for length in arguments.lengths or (256, own.longest_line):
                decoding = own.replace(beam_size=beam_size, max_source_length=length)
                with exported(decoding, precision) as translate:
                    cells = [
                        cell(translate, paragraphs(pairs, joined), own.short_ratio or 0.0)
                        for joined in arguments.joined
                    ]
                search = "greedy" if beam_size == 1 else f"beam {beam_size}"
                print(f"| {search}, {precision} | {length} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    start_tensorflow()
    main()
