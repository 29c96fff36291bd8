"""Hostile text made fit to print: one line, ASCII, bounded."""

from policy.limits import SHOWN_CHARS


def quote(raw: bytes | str) -> str:
    """`raw` in double quotes for a person or a record: controls, quotes and non-ASCII escaped, cut at SHOWN_CHARS.

    What may be a credential, everything from `//` or the start to the last `@`, is left out.
    """
    whole = raw.decode("latin-1") if isinstance(raw, bytes) else raw
    text = _without_credential(whole)[: SHOWN_CHARS + 1]
    return f'"{escape(text[:SHOWN_CHARS])}{"…" if len(text) > SHOWN_CHARS else ""}"'


def escape(text: str) -> str:
    """`text` with every character that a terminal, a log or a JSON reader could act on written as an escape."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return text
    # Not the unicode_escape codec: it is imported when first used, and a front without rights cannot read its file.
    return "".join(ascii(character)[1:-1] for character in text).replace('"', '\\"')


def _without_credential(text: str) -> str:
    before, at, after = text.rpartition("@")
    if not at:
        return text
    scheme, slashes, _ = before.partition("//")
    return f"{scheme if slashes else ''}{slashes}***@{after}"
