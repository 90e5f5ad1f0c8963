"""The commands that test_every_option.py runs.

Each `Form` is a command line, and its `Trial`s are the options that it is run with. An option with a value has two or
more, if there are so many. The names of files and models are those of the folder that the test makes.
"""

from typing import NamedTuple


class Form(NamedTuple):
    """A command line, and the options to try with it.

    Attributes:
        words: The command, with {model} and {data} where its models and its files stand.
        options: The trials by the options' names.
        model: What stands for {model} where a trial does not say so.
        data: The words for a file, with {} for its name.
        file: The file where a trial does not say so.
    """

    words: str
    options: dict[str, "Trial"]
    model: str = ""
    data: str = ""
    file: str = ""


class Trial(NamedTuple):
    """How an option is tried: each value makes a difference to the others, and to a command without the option.

    Attributes:
        values: The values; ("",) for an option that has none.
        also: Words that the option is given together with.
        model, file: Used in place of those of the form.
    """

    values: tuple[str, ...]
    also: str = ""
    model: str | None = None
    file: str | None = None


def trial(values: str = "", also: str = "", model: str | None = None, file: str | None = None) -> Trial:
    """Splits the values at "|"."""
    return Trial(tuple(value.strip() for value in values.split("|")), also, model, file)


def without_model(values: str) -> Trial:
    """An option that names the model."""
    return trial(values, model="")


def without_file(values: str, also: str = "") -> Trial:
    """An option that names the files."""
    return trial(values, also, file="")


SEARCH = {
    "--recipe": trial("bible-en-es | own.yaml"),
    "--beam-size": trial("2 | 3"),
    "--length-penalty": trial("0.5 | 1.1"),
    "--max-source-length": trial("20 | 30"),
}
SEARCH_OF_GENERATE = {name: one for name, one in SEARCH.items() if name != "--recipe"}
DRAWING = {
    "--temperature": trial("0.5 | 1"),
    "--top-k": trial("3 | 4", "--temperature 1"),
    "--top-p": trial("0.5 | 0.6", "--temperature 1"),
    "--seed": trial("5 | 6", "--temperature 1"),
}
LENGTHS = {"--max-length": trial("5 | 6"), "--min-length": trial("2 | 3")}
TAG = {"--tag": trial("<2es> | <2fr>")}
OF_TRANSLATE = {
    "--n-best": trial("2 | 3"),
    "--pairs": trial(),
    "--alignments": trial(also="--format tsv"),
    **TAG,
    **DRAWING,
}
READING_OF_PAIRS = {
    "--columns": trial("source,target,id | source,id,target", file="wide.tsv"),
    "--fields": trial("text,other | other,text", file="table.csv"),
    "--inline-tags": trial("keep | skip", file="memory.tmx"),
    "--skip-bad-lines": trial(file="bad.tsv"),
}
CLEANING = {
    "--max-ratio": trial("1.5 | 3"),
    "--max-characters": trial("5 | 8"),
    "--min-letters": trial("0.5 | 0.9"),
    "--source-script": trial("Latin | Greek"),
    "--target-script": trial("Latin | Cyrillic"),
    "--drop-copies": trial(),
    "--duplicates": trial("pairs | sources"),
    "--without": trial("held.txt | held-table.csv"),
    "--without-fields": trial("text,other | other,text", "--without held-table.csv"),
}
_SOURCES, _TARGETS = "--train-source lines.txt", "--train-target lines.txt"
CORPUS = {
    **READING_OF_PAIRS,
    **CLEANING,
    "--corpus": without_file("letters | digits"),
    "--train": without_file("pairs.tsv | other.tsv"),
    "--valid": trial("other.tsv | lines.tsv"),
    "--train-source": without_file("lines.txt | greek.txt", _TARGETS),
    "--train-target": without_file("lines.txt | greek.txt", _SOURCES),
    "--valid-source": without_file("lines.txt | greek.txt", f"{_SOURCES} {_TARGETS} --valid-target lines.txt"),
    "--valid-target": without_file("lines.txt | greek.txt", f"{_SOURCES} {_TARGETS} --valid-source lines.txt"),
    "--tag": trial("<2es> | <2fr>"),
    "--alignments": trial("pairs.align | other.align", "--guided-alignment 0.5"),
    "--cache": trial("cache-a | cache-b"),
    "--size": trial("tiny | base"),
    "--recipe": trial("bible-en-es | own.yaml"),
    "--config": trial("a.yaml | b.yaml"),
    "--initialize-from": trial("bible-en-es | tagged"),
}
PREPARED = {name: one for name, one in CORPUS.items() if name != "--corpus"}  # which is held in memory
WRITING = {
    "--format": trial("tsv | jsonl"),
    "--longest-line": trial("4 | 6"),
    "--longest-word": trial("3 | 4"),
}
LINES = {
    **WRITING,
    "--trust": trial(),
    "--input": without_file("lines.txt | greek.txt"),
    "--output": trial("out | out-2"),
    "--fields": trial("text | other", file="table.csv"),
    "--inline-tags": trial("keep | skip", file="memory.tmx"),
    "--keep": trial("id | name", "--fields text --format tsv", file="table.csv"),
    "--on-error": trial("source | keep", "--longest-word 3"),
}
JOB = {
    **WRITING,
    "--trust": trial(),
    "--fields": LINES["--fields"],
    "--inline-tags": LINES["--inline-tags"],
    "--keep": LINES["--keep"],
    "--on-error": trial("source | keep"),
    "--lines-per-part": trial("7 | 8"),
    "--processes": trial("3 | 4"),
    "--batch-seconds": trial("5 | 6"),
}
OF_PAIRS = {
    "--input": without_file("lines.tsv | other.tsv"),
    "--fields": trial("text,other | other,text", file="table.csv"),
    "--keep": trial("id | name", "--fields text,other --format tsv", file="table.csv"),
    "--longest-line": trial("8 | 12"),
    "--longest-word": trial("3 | 4"),
}
_SCORED = {name: one for name, one in (LINES | OF_PAIRS | TAG).items() if name != "--on-error"}
_SCORED_JOB = {name: one for name, one in (JOB | OF_PAIRS | TAG).items() if name not in ("--on-error", "--input")}
SERVED = {"--server": without_model("URL | URL/versions/3"), "--token-file": trial("token | other-token")}
SERVED_JOB = {
    "--server": without_model("URL | URL/versions/3 | URL,URL/versions/3"),
    "--token-file": trial("token | other-token"),
    "--batch-seconds": trial("5 | 6"),
}
EVALUATED = {
    **READING_OF_PAIRS,
    **SEARCH,
    **TAG,
    "--limit": trial("1 | 2"),
    "--bleu-tokenizer": trial("char | none"),
    "--split": without_file("train | valid", "--corpus letters"),
    "--corpus": without_file("letters | digits"),
    "--test": without_file("other.tsv | lines.tsv"),
    "--trust": trial(),
}
_RELOADING = "--allow-reload --reload-token-file token"
OF_SERVE = {
    "--name": trial("a | b"),
    "--model-config-file": without_model("models | models-2"),
    "--model-config-poll-seconds": trial("5 | 6", model="--model-config-file models"),
    "--trust": trial(),
    "--batching-parameters-file": trial("batching | batching-2"),
    "--max-request-bytes": trial("5 | 6"),
    "--max-text-bytes": trial("5 | 6"),
    "--max-texts": trial("5 | 6"),
    "--timeout": trial("5 | 6"),
    "--max-queue-seconds": trial("5 | 6"),
    "--load-timeout": trial("5 | 6"),
    "--max-connections": trial("5 | 6"),
    "--monitoring-config-file": trial("monitoring | monitoring-2"),
    "--log-level": trial("debug | error"),
    "--host": trial("0.0.0.0 | ::1"),
    "--rest-port": trial("5 | 6"),
    "--grpc-port": trial("5 | 6"),
    "--token-file": trial("token | other-token"),
    "--allow-reload": trial(also="--reload-token-file token"),
    "--reload-base": trial("tagged | other", _RELOADING),
    "--reload-token-file": trial("token | other-token", "--allow-reload"),
    "--allowed-hosts": trial("a.example | *"),
    "--enable-cors": trial("https://a.example | *"),
    "--tls-certificate": trial("one.pem", "--tls-key one.pem"),
    "--tls-key": trial("one.pem", "--tls-certificate one.pem"),
}
PICTURE = {"--output": trial("a.png | b.svg")}
LENGTH_AND_WIDTH = {"--length": trial("5 | 6"), "--d-model": trial("4 | 6")}
FORMULAS = {
    "positions": LENGTH_AND_WIDTH,
    "products": LENGTH_AND_WIDTH,
    "wavelengths": {"--d-model": trial("4 | 6")},
    "masks": {"--length": trial("5 | 6"), "--padding": trial("1 | 3")},
    "schedule": {"--steps": trial("5 | 6")},
    "labels": {"--epsilon": trial("0.2 | 0.3")},
    "temperatures": {},
    "penalties": {},
}
_TOGETHER = "--num-processes 2 --process-id 0 --coordinator localhost:1"


def _line_forms(
    command: str,
    *,
    model: str,
    lines: dict[str, Trial],
    job: dict[str, Trial],
    served: dict[str, Trial] | None = None,
    presets: str = "",
    file: str = "lines.txt",
) -> list[Form]:
    """The forms of a command that answers lines: here, as a job, on a server, and as a job of servers."""
    data, as_job = "--input {}", f"{command} {{model}} {{data}} --output job/"
    if presets:
        lines = lines | {"--preset": without_model(presets)}
    return [
        Form(f"{command} {{model}} {{data}}", lines, model, data, file),
        Form(as_job, job, model, data, file),
        Form(f"{command} {{model}} {{data}}", SERVED | (served or {}), "--server URL", data, file),
        Form(as_job, SERVED_JOB | (served or {}), "--server URL", data, file),
    ]


FORMS = [
    Form(
        "train {model} {data}",
        {
            **CORPUS,
            "--output": without_model("new | new-2"),
            "--export": trial("exported | exported-2"),
            "--resume": trial(model="--output tagged"),
            "--auto-resume": trial(),
            "--summary": trial("summary.json | summary-2.json"),
            "--stop-signal": trial("SIGUSR1 | USR2"),
            "--devices": trial("2 | 3"),
            "--num-processes": trial("2 | 3", "--process-id 0 --coordinator localhost:1"),
            "--process-id": trial("0 | 1", "--num-processes 2 --coordinator localhost:1"),
            "--coordinator": trial("localhost:1 | localhost:2", "--num-processes 2 --process-id 0"),
        },
        "--output new",
        "--train {}",
        "pairs.tsv",
    ),
    Form(
        "distill {model} {data}",
        {
            "--output": trial("new | new-2", model="tagged"),
            "--teacher-beam-size": trial("2 | 3"),
            "--targets": trial("2 | 3"),
            "--processes": trial("1 | 2"),
            "--beam-size": trial("2 | 3"),
        },
        "tagged --output new",
        "--train {}",
        "pairs.tsv",
    ),
    Form("prepare {data}", PREPARED, data="--train {}", file="pairs.tsv"),
    Form(
        "prepare --train-target lines.txt {data}",
        {"--skip-bad-lines": trial()},
        data="--train-source {}",
        file="bad.txt",
    ),
    Form(
        "data {data}",
        {
            **READING_OF_PAIRS,
            **CLEANING,
            "--plain-text": trial(),
            "--model": trial("cmudict | bible-en-es"),
            "--source-tokenizer": trial("a.model | b.model"),
            "--target-tokenizer": trial("b.model | c.model", "--source-tokenizer a.model"),
        },
        data="{}",
        file="pairs.tsv",
    ),
    *_line_forms(
        "translate",
        model="tagged",
        lines=LINES | SEARCH | OF_TRANSLATE,
        job=JOB | SEARCH | OF_TRANSLATE,
        served=OF_TRANSLATE,
        presets="bible-en-es | cmudict",
    ),
    *_line_forms("classify", model="books", lines=LINES, job=JOB, presets="bible-books"),
    *_line_forms("tag", model="tagger", lines=LINES, job=JOB),
    *_line_forms(
        "generate",
        model="english",
        lines=LINES | SEARCH_OF_GENERATE | DRAWING | LENGTHS,
        job=JOB | SEARCH_OF_GENERATE | DRAWING | LENGTHS,
        served=DRAWING | LENGTHS,
        presets="bible-english",
    ),
    *_line_forms(
        "score",
        model="tagged",
        lines=_SCORED,
        job=_SCORED_JOB,
        served=TAG,
        presets="bible-en-es | cmudict",
        file="lines.tsv",
    ),
    Form(
        "evaluate {model} {data}",
        {
            **EVALUATED,
            "--intervals": trial(),
            "--against": trial("other | plain"),
            "--preset": without_model("bible-en-es | cmudict"),
        },
        "tagged",
        "--test {}",
        "pairs.tsv",
    ),
    Form(
        "evaluate {model} {data}",
        {"--limit": trial("1 | 2")},
        "english",
        "--test {}",
        "lines.txt",
    ),
    Form(
        "compare {model} {data}",
        {**EVALUATED, "--lines": trial("0 | 1"), "--plot": trial("a.png | b.png")},
        "tagged other",
        "--test {}",
        "pairs.tsv",
    ),
    Form(
        "import {model} new",
        {
            "--format": trial("bart | marian"),
            "--source-language": trial("en | es"),
            "--target-language": trial("en | es"),
            "--samples": trial("lines.txt | greek.txt"),
        },
        "m2m100",
    ),
    Form(
        "export {model} exported",
        {
            **SEARCH,
            "--precision": trial("int8 | bfloat16"),
            "--variant": trial("xla"),
            "--signature": trial("score | n_best"),
            "--format": trial("ctranslate2 | safetensors"),
            "--server-version": trial("2.19 | 2.20"),
            "--preset": without_model("bible-en-es | cmudict"),
        },
        "tagged",
    ),
    Form("lint {model}", {"--server-version": trial("2.17 | 2.19"), "--all": trial()}, "export"),
    Form("average {model} new", {"--last": trial("1 | 2")}, "tagged"),
    Form(
        "pack {model} new",
        {
            "--about": trial("about.yaml | about-2.yaml"),
            "--recipe": trial("bible-en-es | own.yaml"),
            "--samples": trial("lines.txt | greek.txt"),
            "--steps": trial("7 | 8"),
        },
        "tagged",
    ),
    Form("demo", {"--corpus": trial("cmudict"), "--output": trial("out | out-2"), "--minutes": trial("2 | 3")}),
    Form(
        "plot attention {model} --text one",
        {
            **PICTURE,
            "--translation": trial("uno | dos"),
            "--kind": trial("encoder | decoder"),
            "--style": trial("heads | links | alignment"),
            "--layer": trial("0 | 1"),
            "--head": trial("0 | 1"),
            "--query": trial("one | two", "--style links"),
            "--preset": without_model("bible-en-es | cmudict"),
        },
        "tagged",
    ),
    Form("plot attention {model}", {"--text": trial("two | three")}, "tagged"),
    Form("plot attention {model} --text one", {"--trust": trial()}, "export"),
    Form(
        "plot beam {model} --text one",
        {
            **PICTURE,
            "--beam-size": trial("2 | 3"),
            "--length-penalty": trial("0.5 | 1.1"),
            "--preset": without_model("bible-en-es | cmudict"),
        },
        "tagged",
    ),
    Form("plot beam {model}", {"--text": trial("two | three")}, "tagged"),
    Form("plot run {model}", {**PICTURE, "--column": trial("loss | accuracy")}, "tagged"),
    Form("serve {model}", OF_SERVE, "export"),
    *(Form(f"plot {name}", {**PICTURE, **options}) for name, options in FORMULAS.items()),
]
