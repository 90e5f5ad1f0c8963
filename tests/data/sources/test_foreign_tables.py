"""Tables of Excel and pandas are told, because they are no tab-separated files of texts."""

import csv
import pathlib
import re
import subprocess
import warnings

import pytest

from kformer.data import read_tsv

SAID = [(f'He said "go {n}" and left', f"Dijo ve {n}") for n in range(300)]
ROWS = [SAID[n] if n % 5 == 4 else (f"verse {n}", f"verso {n}") for n in range(300)]


def table(path: pathlib.Path, rows: list[tuple[str, str]], **form) -> pathlib.Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, **form).writerows(rows)
    return path


def converted(path: pathlib.Path, told: str) -> pathlib.Path:
    """The file after the command that the message gives."""
    command = re.search(r"python -c '.*' < FILE > NEW", told)[0]
    new = path.with_name("new.tsv")
    command = command.replace("FILE", str(path)).replace("NEW", str(new)).replace("python", "python3", 1)
    subprocess.run(command, shell=True, check=True)
    return new


@pytest.mark.parametrize(("quoting", "lines"), [(csv.QUOTE_MINIMAL, 60), (csv.QUOTE_ALL, 300)])
def test_quoted_fields_are_told_with_their_number_and_a_command_that_mends_them(quoting, lines, tmp_path):
    path = table(tmp_path / "a.tsv", ROWS, delimiter="\t", quoting=quoting)
    first = 5 if lines == 60 else 1
    with pytest.warns(UserWarning, match=f'a.tsv: {lines} of 300 lines have .* The first is line {first}: "') as found:
        read = read_tsv(path)
    assert read[4][0] == '"He said ""go 4"" and left"'  # as it is: nobody guesses
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_tsv(converted(path, str(found[0].message))) == ROWS


@pytest.mark.parametrize(
    "texts",
    [
        [('"Go."', '"Ve."'), ("Go.", "Ve.")],  # a sentence in quotation marks, as subtitles have it
        [('"Go," he said.', '"Ve", dijo.'), ('a "" b', "c")],
        [('say ""', '"x"')],
        [('"He said ""go"""', "a"), ('say "go"', "b")],  # CSV would have put the second one into marks, too
    ],
)
@pytest.mark.parametrize("backwards", [False, True])
def test_quotation_marks_of_the_texts_are_not_told(texts, backwards, tmp_path):
    path = tmp_path / "a.tsv"
    texts = texts[::-1] if backwards else texts
    path.write_text("".join(f"{source}\t{target}\n" for source, target in texts))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_tsv(path) == texts


@pytest.mark.parametrize(
    "header",
    [
        *(("source", "target"), ("English", "Spanish"), ('"src"', '"tgt"'), ("en", "es")),
        *(("text", "label"), ("Texts", "Labels"), ("sentence", "tag")),
    ],
)
def test_a_line_with_the_names_of_the_columns_is_told(header, tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("\n" + "\t".join(header) + "\none\tuno\n")
    with pytest.warns(UserWarning, match=f"a.tsv, line 2: '{header[0]}', .* names of the columns.* sed 2d FILE > NEW"):
        assert read_tsv(path)[1] == header


def test_a_word_that_is_the_same_in_both_languages_is_no_name_of_columns(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("Label\tlabel\none\tuno\n")
    assert read_tsv(path)[0] == ("Label", "label")  # without a warning, which would be an error here


def test_a_text_with_the_name_of_its_language_is_no_line_of_names(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("Hola\tes\nHello\ten\n")
    assert read_tsv(path)[0] == ("Hola", "es")  # without a warning, which would be an error here


def test_the_names_in_columns_are_names(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("source\ttarget\tlicence\none\tuno\tCC0\n")
    with pytest.warns(UserWarning, match="line 1: 'source', 'target', 'licence' look like names"):
        read_tsv(path, columns=("source", "target", "licence"))


@pytest.mark.parametrize("separator", [",", ";"])
def test_a_table_with_commas_is_refused_with_a_command_that_mends_it(separator, tmp_path):
    rows = [("one, two", "uno; dos"), ("three", "tres")]
    path = table(tmp_path / "a.csv", [("three", "tres"), *rows], delimiter=separator)
    with pytest.raises(
        ValueError, match=f"line 1: 1 column where 2 .* The line has no tab, but '{separator}'"
    ) as found:
        read_tsv(path)
    assert read_tsv(converted(path, str(found.value)))[1:] == rows


@pytest.mark.parametrize("separator", [",", ";"])
def test_a_table_with_commas_and_quotation_marks_gets_the_command_for_its_separator(separator, tmp_path):
    rows = [("Hello, world; I come", "Hola, mundo; vengo"), ("three", "tres")]
    path = table(tmp_path / "a.csv", rows, delimiter=separator, quoting=csv.QUOTE_ALL)
    with pytest.raises(
        ValueError, match=f"line 1: 1 column where 2 .* The line has no tab, but '{separator}'"
    ) as found:
        read_tsv(path)
    assert read_tsv(converted(path, str(found.value))) == rows


@pytest.mark.parametrize("row", ['three,"tres, cuatro"', '"three, four",tres'])
def test_one_field_in_quotation_marks_beside_a_comma_is_enough(row, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(row + "\n")
    with pytest.raises(ValueError, match="The line has no tab, but ','"):
        read_tsv(path)


def test_a_line_with_a_tab_too_many_is_not_taken_for_a_table_with_commas(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("one, two\tuno\tdos\n")
    with pytest.raises(ValueError, match="line 1: 3 columns where 2") as found:
        read_tsv(path)
    assert "has no tab" not in str(found.value)


def test_an_end_of_a_line_within_quotation_marks_is_refused_with_a_command_that_mends_it(tmp_path):
    path = table(tmp_path / "a.tsv", [("one", "uno"), ("two\nlines", "dos\tcampos")], delimiter="\t")
    with pytest.raises(
        ValueError, match="line 2: 1 column where 2 .* Fields in quotation marks may hold tabs"
    ) as found:
        read_tsv(path)
    assert read_tsv(converted(path, str(found.value))) == [("one", "uno"), ("two lines", "dos campos")]
