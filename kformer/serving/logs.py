"""The server's log: a line of JSON for each event, without the users' texts."""

import json
import logging
import sys
import time


class JsonLines(logging.Formatter):
    """A record as one line of JSON: time (UTC), level, event, and the record's fields."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03}Z"
        line = {"time": moment, "level": record.levelname.lower(), "event": record.getMessage()}
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def start_logging(level: str) -> None:
    """Writes the log to standard error: its own lines, and the warnings of the libraries.

    If the log cannot be written, on a full disk, for example, the server goes on.

    Args:
        level: "debug" (every request), "info" (versions and refused requests), "warning" or "error".
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.raiseExceptions = False
    logging.captureWarnings(True)
    logger, libraries = logging.getLogger("kformer.serving"), logging.getLogger()
    logger.setLevel(level.upper())
    libraries.setLevel(max(logger.level, logging.WARNING))
    libraries.handlers = [handler]
