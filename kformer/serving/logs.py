"""The server's log: a line of JSON for each event, without the users' texts."""

import contextlib
import json
import logging
import math
import os
import queue
import sys
import threading
import time

PERIOD = 60.0  # seconds
_MOST_EVENTS = 1000  # that are counted
LINES_AHEAD = 10_000  # that wait to be written
_SECONDS_AT_THE_END = 1.0  # for the lines that still wait
_STANDARD_ERROR = 2


class JsonLines(logging.Formatter):
    """A record as one line of JSON: time (UTC), level, event, and the record's fields."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03}Z"
        line = {"time": moment, "level": record.levelname.lower(), "event": record.getMessage()}
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


class WithoutWaiting(logging.Handler):
    """Writes lines in a thread of its own. Who has a line to write never waits for who reads the log.

    At most `LINES_AHEAD` lines wait. Further ones are left out, and the next line that has room says how many ("lost").

    Args:
        descriptor: Of the file, such as 2 for standard error.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._waiting: queue.Queue[bytes] = queue.Queue(LINES_AHEAD)
        self._lost = 0
        threading.Thread(target=self._write, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        if self._lost:
            record.fields = {**getattr(record, "fields", {}), "lost": self._lost}
        try:
            self._waiting.put_nowait(f"{self.format(record)}\n".encode())
            self._lost = 0
        except queue.Full:
            self._lost += 1
        except Exception:
            self.handleError(record)

    def flush(self) -> None:
        """Waits until the lines are written, a second at most. Python calls it when the process ends."""
        until = time.monotonic() + _SECONDS_AT_THE_END
        while self._waiting.unfinished_tasks and time.monotonic() < until:
            time.sleep(0.01)

    def _write(self) -> None:
        while True:
            rest = self._waiting.get()
            with contextlib.suppress(OSError):
                while rest:
                    rest = rest[os.write(self._descriptor, rest) :]
            self._waiting.task_done()


class Rarely:
    """Writes each event at most once in a period, with the number of times that it was left out before.

    Args:
        logger: Where the lines go.
        seconds: The period.
    """

    def __init__(self, logger: logging.Logger, seconds: float = PERIOD) -> None:
        self._logger = logger
        self._often = _Often(seconds)

    def warning(self, event: str, **fields: object) -> None:
        left_out = self._often.count(event)
        if left_out is not None:
            self._logger.warning(event, extra={"fields": {**fields, **({"left_out": left_out} if left_out else {})}})


class RarelyFromLibraries(logging.Filter):
    """Lets a library write the same message once in a period: clients can cause some of them as often as they like."""

    def __init__(self, seconds: float = PERIOD) -> None:
        super().__init__()
        self._often = _Often(seconds)

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.startswith("kformer."):
            return True
        left_out = self._often.count(f"{record.name} {record.msg}")
        if left_out:
            record.fields = {"left_out": left_out}
        return left_out is not None


class _Often:
    """Counts what happens too often."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._last: dict[str, tuple[float, int]] = {}  # when it was written, and how often it was left out since then

    def count(self, event: str) -> int | None:
        """None if it was written within the period; or else how often it was left out before."""
        now = time.monotonic()
        with self._lock:
            written, left_out = self._last.get(event, (-math.inf, 0))
            if now - written < self._seconds:
                self._last[event] = written, left_out + 1
                return None
            if len(self._last) >= _MOST_EVENTS:
                self._last.clear()
            self._last[event] = now, 0
            return left_out


def start_logging(level: str) -> None:
    """Writes the log to standard error: its own lines, and the warnings of the libraries, each once in a minute.

    If the log cannot be written, because a disk is full or nobody reads the pipe, for example, the server goes on.

    Args:
        level: "debug" (every request), "info" (versions and refused requests), "warning" or "error".
    """
    # Where standard error is closed, its number may be that of another file.
    handler = logging.NullHandler() if sys.stderr is None else WithoutWaiting(_STANDARD_ERROR)
    handler.setFormatter(JsonLines())
    handler.addFilter(RarelyFromLibraries())
    logging.raiseExceptions = False
    logging.captureWarnings(True)
    logger, libraries = logging.getLogger("kformer.serving"), logging.getLogger()
    logger.setLevel(level.upper())
    libraries.setLevel(max(logger.level, logging.WARNING))
    libraries.handlers = [handler]
