"""Where each key of a TOML text stands, which the standard library's parser does not say."""

from bisect import bisect_right
from typing import Final

type KeyPath = tuple[str | int, ...]

_BARE_ENDS: Final = frozenset(" \t=.]")
_SCALAR_ENDS: Final = frozenset(",]}#\n")
_ESCAPES: Final = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", '"': '"', "\\": "\\", "e": "\x1b"}


def locate(text: str) -> dict[KeyPath, int]:
    """Line, from 1, of every table, key and array element of `text`, which `tomllib` has already accepted.

    A path is what leads to the value in the parsed data: `("grant", 0, "hosts", 1)`.
    """
    return _Scan(text.replace("\r\n", "\n")).run()


class _Scan:
    """One pass over a text that is known to be valid, so nothing is checked twice."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.newlines = [at for at, character in enumerate(text) if character == "\n"]
        self.found: dict[KeyPath, int] = {}
        self.counts: dict[KeyPath, int] = {}
        """Elements so far of each array of tables."""

    def run(self) -> dict[KeyPath, int]:
        table: KeyPath = ()
        while True:
            self.skip_blank()
            if self.at >= len(self.text):
                return self.found
            if self.text.startswith("[[", self.at):
                table = self.header(2)
            elif self.text[self.at] == "[":
                table = self.header(1)
            else:
                self.pair(table)

    def header(self, brackets: int) -> KeyPath:
        line = self.line()
        self.at += brackets
        parts = self.key()
        self.at += brackets
        path: KeyPath = ()
        for depth, part in enumerate(parts, 1):
            path += (part,)
            if brackets == 2 and depth == len(parts):
                self.found.setdefault(path, line)
                self.counts[path] = self.counts.get(path, 0) + 1
            if path in self.counts:
                path += (self.counts[path] - 1,)
            self.found.setdefault(path, line)
        return path

    def pair(self, table: KeyPath) -> None:
        line = self.line()
        path = table
        for part in self.key():
            path += (part,)
            self.found.setdefault(path, line)
        self.skip_space()
        self.at += 1  # "="
        self.skip_space()
        self.value(path)

    def key(self) -> list[str]:
        parts = []
        while True:
            self.skip_space()
            if self.text[self.at] in "\"'":
                parts.append(self.string())
            else:
                start = self.at
                while self.text[self.at] not in _BARE_ENDS:
                    self.at += 1
                parts.append(self.text[start : self.at])
            self.skip_space()
            if self.text[self.at] != ".":
                return parts
            self.at += 1

    def value(self, path: KeyPath) -> None:
        first = self.text[self.at]
        if first in "\"'":
            self.string()
        elif first == "[":
            self.array(path)
        elif first == "{":
            self.inline_table(path)
        else:
            while self.at < len(self.text) and self.text[self.at] not in _SCALAR_ENDS:
                self.at += 1

    def array(self, path: KeyPath) -> None:
        self.at += 1
        index = 0
        while True:
            self.skip_blank()
            if self.text[self.at] == "]":
                break
            if self.text[self.at] == ",":
                self.at += 1
                continue
            element = (*path, index)
            self.found[element] = self.line()
            self.value(element)
            index += 1
        self.at += 1

    def inline_table(self, path: KeyPath) -> None:
        self.at += 1
        while True:
            self.skip_blank()
            if self.text[self.at] == "}":
                break
            if self.text[self.at] == ",":
                self.at += 1
                continue
            self.pair(path)
        self.at += 1

    def string(self) -> str:
        quote = self.text[self.at]
        if self.text.startswith(quote * 3, self.at):
            return self.long_string(quote)
        self.at += 1
        out = []
        while self.text[self.at] != quote:
            character = self.text[self.at]
            self.at += 1
            out.append(self.escaped() if character == "\\" and quote == '"' else character)
        self.at += 1
        return "".join(out)

    def escaped(self) -> str:
        letter = self.text[self.at]
        self.at += 1
        digits = {"u": 4, "U": 8, "x": 2}.get(letter)
        if digits is None:
            return _ESCAPES.get(letter, letter)
        code = self.text[self.at : self.at + digits]
        self.at += digits
        return chr(int(code, 16))

    def long_string(self, quote: str) -> str:
        """Skip a string of several lines; such a string is never a key, so its value is not needed."""
        self.at += 3
        while not self.text.startswith(quote * 3, self.at):
            self.at += 2 if self.text[self.at] == "\\" and quote == '"' else 1
        self.at += 3
        while self.text.startswith(quote, self.at):  # up to two quotes may stand right before the closing three
            self.at += 1
        return ""

    def line(self) -> int:
        return bisect_right(self.newlines, self.at - 1) + 1

    def skip_space(self) -> None:
        while self.at < len(self.text) and self.text[self.at] in " \t":
            self.at += 1

    def skip_blank(self) -> None:
        while self.at < len(self.text) and self.text[self.at] in " \t\n#":
            if self.text[self.at] == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            else:
                self.at += 1
