"""Names of models, which stand in URLs."""


def check_model_name(name: str) -> None:
    """Refuses a name with which no client could ask for the model.

    Raises:
        ValueError: The name is empty, `.` or `..`, holds a slash or a colon, or is not UTF-8.
    """
    if name in ("", ".", "..") or {*"/:"} & {*name} or not name.isprintable():
        raise ValueError(
            "A model's name stands in URLs, so it is not empty, `.` or `..`, holds neither / nor :, and can be "
            f"printed. Received: {name!r}."
        )
