"""The page of `kformer serve`, in Chromium without a window."""

import threading
import time

import pytest
from fake_server import FakeServer
from reversal import ANSWERS
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select
from shown_page import ShownPage

pytestmark = pytest.mark.tensorflow_only  # that is: once

PAUSE = 0.3  # seconds without a key before the page asks
LONG = " ".join(f"word{number}" for number in range(10, 80))  # 140 tokens


@pytest.fixture
def server():
    with FakeServer() as fake:
        yield fake


@pytest.fixture
def open_page(chromium):
    """Opens the page of a server. Nothing may go wrong there in silence, and nothing may come from elsewhere."""
    opened = []

    def open_at(url):
        chromium.get("about:blank")
        chromium.get_log("browser"), chromium.get_log("performance")
        page = ShownPage(chromium, url)
        page.appear()
        opened.append((page, url))
        return page

    yield open_at
    for page, url in opened:
        assert page.complaints() == []
        assert {address for address in page.requested() if not address.startswith(url)} == set()


@pytest.fixture
def page(open_page, server):
    return open_page(server.url)


def refusal(page):
    """The error that is shown. Takes out of the console what Chromium writes about a refused request."""
    page.wait(lambda: page["error"].text)
    assert all("Failed to load resource" in complaint for complaint in page.complaints())
    return page["error"].text


def test_typing_gives_a_translation_its_tokens_and_its_score(page, server):
    for key in "one two":
        page["text"].send_keys(key)
    page.wait(lambda: page["target"].text == "two one")
    assert page.texts("source") == ["one", "two"]
    assert page.texts("target") == ["two", "one", ""]
    assert page["score"].text == "−0.25"
    assert page["version"].text == "reversal, version 7"
    assert len(server.asked) < 2 * len("one two")  # keys come faster than the page asks


def test_other_translations_stand_below_with_their_scores(page):
    page.translate("one Two")
    assert page["found"].text.splitlines() == ["TWO ONE", "−0.50", "two one", "−1.75"]


def answers_of(server, name, answer):
    """Makes the server's only model one of another task."""
    server.models = {name: ("serving_default",)}
    server.others = {name: answer}


def test_a_classifier_shows_its_label_and_the_next_labels_with_their_probabilities(server, open_page):
    shares = {"short": 0.2, "long": 0.75, "odd": 0.048, "even": 0.002}
    answer = {"label": "long", "probability": 0.75, "labels": [*shares], "probabilities": [*shares.values()]}
    answers_of(server, "lengths", lambda text: answer)
    page = open_page(server.url)
    page["text"].send_keys("one two three")
    page.wait(lambda: page["target"].text == "long")
    assert (page["heading"].text, page["measure"].text, page["score"].text) == ("Label", "Probability", "75 %")
    assert page["found"].text.splitlines() == ["short", "20 %", "odd", "5 %", "even", "below 1 %"]
    assert not page["meaning"].is_displayed()
    assert page["notes"].text == ""


def test_a_tagger_shows_each_word_with_its_tag(server, open_page):
    answers_of(server, "tags", lambda text: {"tags": "N V", "score": -0.5})
    page = open_page(server.url)
    page["text"].send_keys("dogs  bark")
    page.wait(lambda: page.all("ruby"))
    assert page.script("[...document.querySelectorAll('ruby')].map((each) => each.textContent)") == ["dogsN", "barkV"]
    assert (page["heading"].text, page["score"].text) == ("Tags", "−0.50")


def test_a_language_model_shows_its_text(server, open_page):
    answers_of(server, "english", lambda text: {"text": f"{text} two", "score": -1.0})
    page = open_page(server.url)
    page["text"].send_keys("one")
    page.wait(lambda: page["target"].text == "one two")
    assert (page["heading"].text, page["meaning"].is_displayed()) == ("Continued", True)


def test_a_model_of_another_program_is_told(server, open_page):
    answers_of(server, "other", lambda text: {"logits": [0.0]})
    page = open_page(server.url)
    page["text"].send_keys("one")
    page.wait(lambda: page["error"].text)
    assert page["error"].text == "This page shows no answers of logits."
    assert not page["answer"].is_displayed()


def test_pointing_at_a_token_shows_what_it_attends_to_and_what_attends_to_it(page):
    page.translate("one two")
    two, one, end = page.tokens("target")
    page.point(one)
    assert page.links("source") == {"one": 0.5, "two": 0.25}
    assert page["detail"].text == "one: probability 50 %, attends to one 50 %, two 25 %, the end of the text 25 %"
    assert len(page.all("#lines path")) == 2
    page.point(two)
    assert page.links("source") == {"two": 0.5}
    assert page["detail"].text == "two: probability 90 %, attends to two 50 %, the end of the text 50 %"
    page.point(end)
    assert page["detail"].text == "end: probability above 99 %, attends to the end of the text above 99 %"
    page.point(page.tokens("source")[1])
    assert (page.links("source"), page.links("target")) == ({}, {"two": 0.5, "one": 0.25})
    assert page["detail"].text == "two: attended to by two 50 %, one 25 %"
    page.point(page["text"])
    assert (page.links("source"), page.links("target"), page.all("#lines path")) == ({}, {}, [])


def test_the_more_a_token_counts_the_darker_it_is_and_the_less_certain_it_is_the_darker_its_bar(page):
    page.translate("one two")
    two, one, _ = page.tokens("target")
    opacity = "Number(getComputedStyle(arguments[0])[arguments[1]].match(/[/] ([0-9.]+)/)?.[1] ?? 1)"
    bars = [page.script(opacity, token, "borderBottomColor") for token in (two, one)]
    assert bars == pytest.approx([0.1, 0.5])
    page.point(one)
    shades = [page.script(opacity, token, "backgroundColor") for token in page.tokens("source")]
    assert shades[0] / shades[1] == pytest.approx((0.5 / 0.25) ** 0.5, rel=0.01)


def test_probabilities_can_be_read_as_numbers(page):
    page.translate("one two")
    shown = "getComputedStyle(arguments[0], '::after').content"
    assert page.script(shown, page.tokens("target")[1]) == "none"
    page["figures"].click()
    assert [page.script(shown, token) for token in page.tokens("target")] == ['"90" / ""', '"50" / ""', "none"]


def test_keys_move_along_the_tokens_and_across_to_the_strongest_link(page):
    page.translate("one two three")
    page["text"].send_keys(Keys.TAB)
    assert page.focused() == "one"
    assert page.links("target") == {"one": 0.5}
    walk = [
        (Keys.ARROW_RIGHT, "two"),
        (Keys.ARROW_DOWN, "two"),
        (Keys.ARROW_LEFT, "e"),
        (Keys.ARROW_LEFT, "thre"),
        (Keys.ARROW_LEFT, "thre"),
        (Keys.ARROW_RIGHT, "e"),
        (Keys.ARROW_UP, "e"),
        (Keys.HOME, "one"),
        (Keys.END, "e"),
    ]
    for key, text in walk:
        page.press(key)
        assert page.focused() == text
    page.press(Keys.TAB)
    assert page.focused() == "e"  # the token of the translation that had the focus last
    assert page.links("source") == {"e": 0.5}


def test_a_screen_reader_is_told_the_translation_and_every_token(page):
    page.translate("one two")
    assert page["spoken"].get_attribute("aria-live") == "polite"
    assert page.script("document.getElementById('spoken').textContent") == "two one"
    assert [box.accessible_name for box in page.all("[role=listbox]")] == [
        "Tokens of the text",
        "Tokens of the translation",
    ]
    two, _, end = page.tokens("target")
    assert (two.aria_role, two.accessible_name, end.accessible_name) == ("option", "two", "end")
    description = "probability 90\u00a0%, attends to two 50\u00a0%, the end of the text 50\u00a0%"
    assert two.get_attribute("aria-description") == description


def test_every_control_has_a_name_and_every_id_is_there_once(server, open_page):
    server.models["reversal"] = server.models["second"] = (*ANSWERS, "known_tags")
    page = open_page(server.url)
    page.translate("one two")
    server.token = "secret"
    page.type("!")
    refusal(page)
    # Some versions of Chromium leave the blank between a label's text and its control in the name.
    names = {control.accessible_name.strip() for control in page.all("input, button, select, textarea")}
    assert names == {"Model", "Tag", "Access token", "Use", "Text", "Show probabilities in percent"}
    assert [token.accessible_name for token in page.tokens("target")] == ["two", "one", "<2es", ">", "end"]
    identifiers = [each.get_attribute("id") for each in page.all("[id]")]
    assert len(identifiers) == len({*identifiers})
    assert page.script("document.documentElement.lang") == "en"
    assert page.chrome.title == "kformer"
    assert {"h1", "h2"} == {each.tag_name for each in page.all("h1, h2, h3, h4")}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_has_enough_contrast(page, scheme):
    page.translate("one two")
    page.appear(scheme=scheme)
    paper = page.color(page.all("html")[0], "backgroundColor")
    assert (sum(paper) > 1.5) == (scheme == "light")
    for selector in ("textarea", "#source", "#target", "#detail", "h1", "h2", "#version", "#found span", "label"):
        assert contrast(page.color(page.all(selector)[0], "color"), paper) >= 4.5, selector
    page.point(page.tokens("target")[0])
    active = page.tokens("target")[0]
    assert contrast(page.color(active, "color"), page.color(active, "backgroundColor")) >= 4.5


def contrast(one, other):
    """The ratio that the Web Content Accessibility Guidelines define for two colours."""

    def luminance(color):
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in color)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_an_older_answer_never_replaces_a_newer_one(page, server):
    server.held["one"] = threading.Event()
    page.type("one")
    page.wait(lambda: server.asked)  # the answer waits
    page.type(" two")
    page.wait(lambda: page["target"].text == "two one")
    server.held["one"].set()
    time.sleep(2 * PAUSE)
    assert page["target"].text == "two one"
    assert server.asked[0] == ("translate_detailed", "one")


def test_nothing_is_asked_while_a_character_is_being_composed(page, server):
    page["text"].click()
    page.command("Input.imeSetComposition", text="ni", selectionStart=2, selectionEnd=2)
    time.sleep(2 * PAUSE)
    assert server.asked == []
    page.command("Input.insertText", text="你")
    page.wait(lambda: page["target"].text == "你")


def test_an_error_is_told_in_the_words_of_the_server_until_it_is_over(page, server):
    server.refusals = [(413, "A text may have 9 bytes. Received: 10.")]
    page.type("one two on")
    assert refusal(page) == "A text may have 9 bytes. Received: 10."
    assert page["error"].aria_role == "alert"
    page.type("e")
    page.wait(lambda: page["target"].text == "one two one")
    assert page["error"].text == ""


def test_a_server_that_has_gone_is_told(page, server):
    page.translate("one two")
    server.stop()
    page.type(" three")
    assert refusal(page).startswith("The server cannot be reached")


def test_a_busy_server_is_asked_again(page, server):
    server.refusals = [(503, "The model is being loaded.")]
    page.type("one two")
    assert refusal(page) == "The model is being loaded."
    page.wait(lambda: page["target"].text == "two one")
    assert page["error"].text == ""


def test_a_newer_version_is_taken_up(page, server):
    server.version, server.models["reversal"] = 8, ("serving_default",)
    page.type("one two")
    page.wait(lambda: page["target"].text == "two one")
    assert page["version"].text == "reversal, version 8"
    assert page.tokens("target") == []
    assert all("404" in complaint for complaint in page.complaints())


def test_a_model_that_has_another_name_now_is_found(server, open_page):
    server.models["other"] = ("serving_default",)
    page = open_page(server.url)
    Select(page["model"]).select_by_visible_text("other")
    page.translate("one two")
    server.models = {"plain": ("serving_default",), "other": ("serving_default",)}
    page.type(" three")
    page.wait(lambda: page["target"].text == "three two one")
    server.models = {"first": ("serving_default",), "renamed": ("serving_default",)}
    page.type(" four")
    page.wait(lambda: page["target"].text == "four three two one")
    assert [option.text for option in Select(page["model"]).options] == ["first", "renamed"]
    assert page["error"].text == ""
    server.models = {}
    page.type(" five")
    assert "404" in refusal(page) or page["error"].text
    assert all("404" in complaint for complaint in page.complaints())


def test_a_model_can_be_chosen(server, open_page):
    server.models["plain"] = ("serving_default", "n_best")
    page = open_page(server.url)
    page.translate("one two")
    assert len(page.texts("target")) == 3
    Select(page["model"]).select_by_visible_text("plain")
    page.wait(lambda: not page.tokens("target"))
    assert page["target"].text == "two one"
    assert page["notes"].text.endswith("kformer export RUN DIR --signature translate_detailed")
    assert page["found"].text.startswith("TWO ONE")
    assert not page["figures"].is_displayed()


def test_an_export_without_further_signatures_is_told_how_to_get_them(server, open_page):
    server.models["reversal"] = ("serving_default",)
    page = open_page(server.url)
    page.translate("one two")
    assert page["target"].text == "two one"
    assert page["notes"].text == (
        "This page shows more of an export that is made with "
        "kformer export RUN DIR --signature translate_detailed --signature n_best"
    )
    assert not page["others"].is_displayed()


def test_a_server_that_wants_a_token_gets_it(server, open_page):
    server.token = "secret"
    page = open_page(server.url)
    assert refusal(page) == "This server wants a token"
    page["token"].send_keys("guess", Keys.ENTER)
    page.wait(lambda: page["token"].is_displayed())
    assert refusal(page) == "This server wants a token"
    page["token"].clear()
    page["token"].send_keys("secret", Keys.ENTER)
    page.wait(lambda: page["version"].text)
    page.translate("one two")
    assert page["target"].text == "two one"
    assert not page["token"].is_displayed()
    assert page.script("[localStorage.length, sessionStorage.length, document.cookie]") == [0, 0, ""]


def test_flags_are_told_in_words(page, server):
    page.translate("one")
    assert page["notes"].text == ""
    server.flags = {"overlong": True, "truncated": True, "short": True}
    page.translate("one\ntwo")
    divided, overlong, truncated, short = page["notes"].text.splitlines()
    assert divided.startswith("The text was translated in parts")
    assert overlong.startswith("A sentence was too long for the model")
    assert truncated.startswith("The translation of a part was ended by its largest length")
    assert short.startswith("The translation of a part is much too short for its source")


def test_what_stands_between_tokens_is_shown(page):
    page.translate("one  two\n\n\tthree")
    assert page.script("document.getElementById('source').textContent") == "one  two\n\n\tthree"
    assert page["target"].text.splitlines() == ["two one", "", "three"]


def test_a_text_is_never_read_as_html(page):
    page.translate("<b>one</b> <img/src=x>")
    assert page.script("document.getElementById('target').textContent") == "<img/src=x> <b>one</b>"
    assert page.all("#answer img, #answer b") == []


def test_texts_from_right_to_left_run_so_and_the_arrow_keys_with_them(page):
    page.translate("في البدء خلق\none two")
    boxes = "arguments[0].getBoundingClientRect().right"
    edges = [page.script(boxes, token) for token in page.tokens("target")]
    assert edges[0] > edges[1] > edges[2]  # the first line's tokens
    assert page.tokens("target")[-3].location["x"] == page["target"].location["x"]  # the second line begins at the left
    page["text"].send_keys(Keys.TAB)
    first = page.focused()
    page.press(Keys.ARROW_LEFT)
    assert (first, page.focused()) == ("في", "البد")
    page.press(Keys.ARROW_RIGHT)
    assert page.focused() == "في"


def test_characters_of_several_bytes_may_be_several_tokens(page):
    page.translate("太初に 𝄞")
    assert page.texts("source") == ["太", "初", "に", "𝄞", ""]
    assert page["target"].text == "𝄞 太初に"
    assert page.tokens("source")[4].accessible_name == "part of a character"
    page.point(page.tokens("target")[3])
    assert page.links("source") == {"初": 0.5, "に": 0.25}


def test_every_line_has_tokens_of_its_own(page):
    page.translate("one\n\ntwo")
    names = [token.accessible_name for token in page.tokens("target")]
    assert names == ["one", "end", "two", "end"]
    page.point(page.tokens("target")[2])
    assert page.links("source") == {"two": 0.5}


@pytest.mark.parametrize("text", [LONG, "太初に言があった。" * 30, "w" * 500], ids=["words", "characters", "one word"])
def test_long_texts_wrap_on_a_telephone(page, text):
    page.appear(width=390)
    page.translate(text)
    assert page.script("document.documentElement.scrollWidth") <= 390
    lines = "new Set([...arguments[0]].map((each) => each.getBoundingClientRect().top)).size"
    assert page.script(lines, page.tokens("target")) > 1 or text == "w" * 500


def test_on_paper_stand_the_texts_and_the_probabilities_alone(page):
    page.translate("one two")
    page.appear(media="print", scheme="dark")
    assert page["source"].is_displayed()
    assert page["target"].is_displayed()
    assert not any(page[name].is_displayed() for name in ("text", "model", "figures", "detail"))
    assert page.script("getComputedStyle(arguments[0], '::after').content", page.tokens("target")[0]) == '"90"'
    assert sum(page.color(page["target"], "color")) < 1  # dark on the light paper


def test_a_model_that_learned_it_translates_as_one_types(served, open_page):
    page = open_page(f"{served.url}/")
    page.translate("one two three\nfour")
    assert page["target"].text == "tres dos uno\ncuatro"
    assert page["version"].text == "numbers, version 1"
    assert page["notes"].text.startswith("The text was translated in parts")
    assert [text.strip() for text in page.texts("source")] == ["one", "two", "three", "four"]
    assert [token.accessible_name.strip() for token in page.tokens("target")] == [
        *("tres", "dos", "uno", "end"),
        *("cuatro", "end"),
    ]
    page.wait(lambda: len(page.all("#found span")) == 3)  # 4 is the beam size
    scores = [page["score"].text, *(each.text for each in page.all("#found span"))]
    values = [float(score.replace("−", "-")) for score in scores]
    assert values == sorted(values, reverse=True)


def test_a_tag_is_chosen_where_the_model_knows_some(server, open_page):
    server.models = {"both": (*ANSWERS, "known_tags")}
    page = open_page(server.url)
    page.wait(lambda: page["wanted"].is_displayed())
    tags = Select(page["tag"])
    assert [option.text for option in tags.options] == ["<2es>", "<2en>"]
    page.translate("one two")
    assert server.asked[-1][1] == "<2es> one two"
    tags.select_by_visible_text("<2en>")
    page.wait(lambda: server.asked[-1][1] == "<2en> one two")


def test_there_is_no_tag_to_choose_where_the_model_knows_none(page):
    page.translate("one two")
    assert not page["wanted"].is_displayed()
