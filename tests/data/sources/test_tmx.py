"""Translation memories: what programs write, and what hostile files hold."""

import gzip
import tracemalloc

import pytest

from kformer.data import TmxFile, open_pairs

ENGLISH = {"en": "one", "es": "uno"}
TWICE = [("en", "one"), ("es", "uno"), ("en", "two"), ("es", "dos")]


def unit(texts, attribute="xml:lang"):
    return (
        "<tu>" + "".join(f'<tuv {attribute}="{name}"><seg>{text}</seg></tuv>' for name, text in texts.items()) + "</tu>"
    )


def memory(*units, header='<header srclang="en"/>', encoding="utf-8", start=""):
    start = f'<?xml version="1.0" encoding="{encoding}"?>{start}'
    return f'{start}<tmx version="1.4">{header}<body>{"".join(units)}</body></tmx>'.encode(encoding)


@pytest.fixture
def write(tmp_path):
    def write_to(content, name="memory.tmx"):
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    return write_to


def test_of_two_segments_of_a_language_the_first_one_is_read(write):
    variants = (f'<tuv xml:lang="{name}"><seg>{text}</seg></tuv>' for name, text in TWICE)
    assert list(TmxFile(write(memory(f"<tu>{''.join(variants)}</tu>")), ("en", "es"))) == [("one", "uno")]


@pytest.mark.parametrize("languages", [("pt", "pt-BR"), ("pt-BR", "pt")])
def test_a_language_and_its_variant_never_have_the_same_segment(write, languages):
    file = TmxFile(
        write(memory(unit({"pt-BR": "trem", "pt-PT": "comboio"}), unit({"pt-BR": "ônibus", "en": "bus"}))), languages
    )
    words = {"pt": "comboio", "pt-BR": "trem"}
    with pytest.warns(UserWarning, match="of 2 units, 1 without one of the languages"):
        assert list(file) == [tuple(words[language] for language in languages)]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "iso-8859-1"])
@pytest.mark.parametrize("attribute", ["xml:lang", "lang"])
def test_pairs_of_two_languages_are_read_in_any_encoding(write, encoding, attribute):
    units = unit({"es": "año  \n &lt;nuevo&gt;", "en": "new&#xA0;year"}, attribute), unit(ENGLISH, attribute)
    path = write(memory(*units, encoding=encoding))
    assert list(TmxFile(path, ("en", "es"))) == [("new year", "año <nuevo>"), ("one", "uno")]
    assert list(TmxFile(path, ("es", "en")))[1] == ("uno", "one")


@pytest.mark.parametrize(
    ("asked", "text"),
    [("en", "plain"), ("EN", "plain"), ("en-gb", "British"), ("en-US", "American"), ("es", "uno"), ("pt", "um")],
)
def test_a_language_stands_for_its_variants_unless_it_is_there_itself(write, asked, text):
    texts = {
        "ptx": "another",
        "en-US": "American",
        "en-GB": "British",
        "en": "plain",
        "es": "uno",
        "pt-BR": "um",
        "pt-PT": "outro",
    }
    path = write(memory(unit(texts)))
    assert next(iter(TmxFile(path, (asked, "es" if asked != "es" else "en"))))[0] == text


@pytest.mark.parametrize("source", ["en", "EN", "es-ES"])
def test_the_languages_of_a_file_with_two_need_no_names(write, source):
    path = write(memory(unit({"en-US": "one", "es-ES": "uno"}), header=f'<header srclang="{source}"/>'))
    assert list(open_pairs(path)) == [("uno", "one") if source == "es-ES" else ("one", "uno")]


@pytest.mark.parametrize(
    ("header", "texts"),
    [('<header srclang="*all*"/>', ENGLISH), ("", ENGLISH), ('<header srclang="en"/>', ENGLISH | {"fr": "un"})],
)
def test_languages_that_nobody_can_know_are_asked_for(write, header, texts):
    with pytest.raises(ValueError, match=r"which languages\? Its first unit has en, es.* Name two: fields="):
        list(TmxFile(write(memory(unit(texts), header=header))))


TAGGED = 'a <bpt i="1">&lt;b&gt;</bpt>bold<ept i="1">&lt;/b&gt;</ept> <hi>high <ph>[x<sub>y</sub>]</ph></hi> z'


@pytest.mark.parametrize(
    ("what", "text"), [("drop", "a bold high z"), ("keep", "a <b>bold</b> high [xy] z"), ("skip", None)]
)
def test_tags_within_texts_are_dropped_kept_or_skipped_with_their_units(write, what, text):
    path = write(memory(unit({"en": TAGGED, "es": "b"}), unit({"en": "c <hi>d</hi>", "es": "e"})))
    pairs = TmxFile(path, ("en", "es"), what)
    if text is None:
        with pytest.warns(
            UserWarning, match="of 2 units, 0 without one of the languages and 1 with inline tags were left"
        ):
            found = list(pairs)
        assert found == [("c d", "e")]
        assert list(pairs) == found  # without another warning
    else:
        assert list(pairs) == [(text, "b"), ("c d", "e")]


def test_units_without_one_of_the_languages_are_left_out_and_counted(write):
    units = unit(ENGLISH), unit({"en": "two"}), unit({"fr": "trois", "es": "tres"}), "<tu/>"
    path = write(memory(*units))
    with pytest.warns(UserWarning, match="memory.tmx: of 4 units, 3 without one of the languages"):
        assert list(TmxFile(path, ("en", "es"))) == [("one", "uno")]
    with pytest.raises(ValueError, match=r"no pair of en and de: .* Its languages are: en \(2\), es \(2\), fr \(1\)"):
        list(TmxFile(path, ("en", "de")))


def test_it_is_recognized_whatever_it_is_called_and_compressed(write):
    content = memory(unit(ENGLISH), encoding="utf-16", start='<!DOCTYPE tmx SYSTEM "tmx14.dtd">')
    for name, stored in (("a.tsv", content), ("b.txt.gz", gzip.compress(content)), ("c", content)):
        assert list(open_pairs(write(stored, name))) == [("one", "uno")]


def test_options_arrive_through_open_pairs(write):
    path = write(memory(unit({"en": TAGGED, "es": "b"})))
    assert list(open_pairs(path, fields=("es", "en"), inline_tags="keep")) == [("b", "a <b>bold</b> high [xy] z")]


def test_a_large_memory_is_read_unit_by_unit(write):
    path = write(memory(*[unit({"en": f"text {number} " + "x" * 500, "es": "y"}) for number in range(20_000)]))
    tracemalloc.start()
    assert sum(1 for _ in TmxFile(path, ("en", "es"))) == 20_000
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 2**20  # of 12 MB


LAUGHS = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 10))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is no valid TMX: no element found"),
        (memory(unit(ENGLISH))[:-20], "is no valid TMX: unclosed token: line 1.*cut off"),
        (memory(unit(ENGLISH)).replace(b"</seg>", b"", 1), "is no valid TMX: mismatched tag: line 1"),
        (b"<html><body><tu/></body></html>", "is no TMX: it begins with <html>"),
        (memory(), "has no pair of two languages: of 0 units.* Its languages are: none"),
        (
            memory(unit({"en": "&a9;", "es": "x"}), start=f'<!DOCTYPE tmx [<!ENTITY a0 "ha">{LAUGHS}]>'),
            "is no valid TMX",
        ),
        (
            memory(unit({"en": "&x;", "es": "x"}), start='<!DOCTYPE tmx [<!ENTITY x SYSTEM "/etc/passwd">]>'),
            "is no valid",
        ),
        (memory(unit(ENGLISH)).replace(b"uno", b"\xf1"), "is no valid TMX: not well-formed"),
    ],
    ids=["empty", "cut off", "a tag is missing", "html", "no units", "a billion laughs", "an outer file", "not UTF-8"],
)
def test_what_is_no_memory_is_told(write, content, message):
    with pytest.raises(ValueError, match=f"memory.tmx.*{message}"):
        list(TmxFile(write(content), ("en", "es") if content != memory() else None))


def test_tags_within_tags_without_end_are_read(write):
    deep = "<hi>" * 50_000 + "deep" + "</hi>" * 50_000
    assert list(TmxFile(write(memory(unit({"en": deep, "es": "x"}))), ("en", "es"))) == [("deep", "x")]


@pytest.mark.parametrize("fields", [("en",), ("en", "es", "fr")])
def test_two_languages_are_named(fields):
    with pytest.raises(ValueError, match="fields of a TMX are two languages"):
        TmxFile("memory.tmx", fields)


def test_what_becomes_of_tags_is_one_of_three():
    with pytest.raises(ValueError, match="inline_tags must be one of drop, keep, skip. Received: 'remove'"):
        TmxFile("memory.tmx", inline_tags="remove")
