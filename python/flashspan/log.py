"""The library's log lines (one for every compile, for example) go through the Python logger ``flashspan``."""

from __future__ import annotations

import logging
import os

logger = logging.getLogger("flashspan")

_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)  # in the order of the library's own
_NAMES = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR,
          "off": logging.CRITICAL + 1}


def receive(level: int, text: str) -> None:
    """Called by the extension, from any thread."""
    logger.log(_LEVELS[level], "%s", text)


def follow_environment() -> None:
    """FLASHSPAN_LOG sets the logger's level, as it does for the command, unless the program has set one. The sink that it
    may name behind a colon is the command's; here Python's handlers say where lines go."""
    name = os.environ.get("FLASHSPAN_LOG", "").partition(":")[0]
    level = _NAMES.get(name)
    if level is None:
        if name:
            logger.warning("FLASHSPAN_LOG: got %s; takes debug, info, warning, error or off; using warning", name)
        return
    if logger.level != logging.NOTSET:
        return
    logger.setLevel(level)
    if level < logging.WARNING and not logging.getLogger().handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("[flashspan] [%(levelname)s] %(message)s"))
        logger.addHandler(handler)
