"""Tags: words before a source that say what is wanted of the model, such as the language of the target."""

from collections.abc import Collection, Iterable


def check_tags(tags: Iterable[str]) -> None:
    """Refuses a tag that could not be told from the text behind it.

    Raises:
        ValueError: A tag has white space, or what is no character.
    """
    for tag in tags:
        if tag and (tag.split() != [tag] or not tag.isprintable()):
            raise ValueError(f"A tag is one word without white space, such as <2es>. Received: {tag!r}.")


def tagged(text: str, tag: str) -> str:
    """The text behind its tag. A blank text stays blank.

    Examples:
        >>> tagged("one two", "<2es>"), tagged("one two", ""), tagged(" ", "<2es>")
        ('<2es> one two', 'one two', ' ')
    """
    return f"{tag} {text}" if tag and text.strip() else text


def is_mixed(tags: Collection[str]) -> bool:
    """Whether some corpora have a tag, and others none, which is "" here.

    Examples:
        >>> is_mixed(["", "<bt>"]), is_mixed(["<2en>", "<2es>"]), is_mixed(["", ""])
        (True, False, False)
    """
    return "" in tags and any(tags)


def has_tag(text: str, tags: Collection[str]) -> bool:
    """Whether the text begins with one of the tags.

    Examples:
        >>> [has_tag(text, ["", "<bt>"]) for text in ("<bt> one", "one <bt>", " one", "")]
        [True, False, False, False]
    """
    first = text.partition(" ")[0]
    return bool(first) and first in tags


def tag_of(text: str, tags: Collection[str]) -> str:
    """The one of the tags with which the text begins, or "".

    Examples:
        >>> tag_of("<2es> one two", ["<2en>", "<2es>"]), tag_of("one <2es>", ["<2es>"])
        ('<2es>', '')
    """
    return text.partition(" ")[0] if has_tag(text, tags) else ""


def without_tag(text: str, tags: Collection[str]) -> str:
    """The text without the tag that it begins with, if any.

    Examples:
        >>> without_tag("<2es> one two", ["<2en>", "<2es>"]), without_tag("one <2es>", ["<2es>"])
        ('one two', 'one <2es>')
    """
    return text.partition(" ")[2] if has_tag(text, tags) else text
