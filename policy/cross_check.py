"""Faults between the keys of a policy file, found on its parsed TOML so that no fault of one key hides them."""

from collections.abc import Iterator
from typing import Any

from policy.limits import IDLE_LEAST_S
from policy.lines import KeyPath
from policy.quote import quote


def cross_check(raw: dict[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    """Each fault of the file `raw`: the path of the key, and what is wrong and what to write instead."""
    names: dict[str, int] = {}
    for kind in ("grant", "refuse"):
        tables = raw.get(kind)
        for at, table in enumerate(tables if isinstance(tables, list) else ()):
            if not isinstance(table, dict):
                continue
            path: KeyPath = (kind, at)
            yield from _check_said(kind, table, path)
            if kind == "grant":
                yield from _check_grant(table, path)
                name = table.get("name")
                if isinstance(name, str) and names.setdefault(name, at) != at:
                    yield (*path, "name"), f"another grant is called {quote(name)}; give each its own name"
    limits = raw.get("limits")
    for key, value in limits.items() if isinstance(limits, dict) else ():
        if isinstance(value, int | float) and not isinstance(value, bool) and not 0 < value < float("inf"):
            yield ("limits", key), f"{value} is no limit; write a number above 0"
        elif key == "idle_s" and isinstance(value, int | float) and value < IDLE_LEAST_S:
            yield ("limits", key), f"{value} cuts quiet tunnels that are alive; write {IDLE_LEAST_S} or more"


def _check_said(kind: str, table: dict[str, Any], path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    if not any(table.get(key) for key in ("hosts", "addresses", "preset")):
        wanted = "hosts, addresses or preset" if kind == "grant" else "hosts or addresses"
        yield path, f"a {kind} that says nothing; write {wanted}, or remove it"
    for key in ("ports", "private", "methods", "paths"):
        if table.get(key) == []:
            yield (*path, key), "an empty list; remove the key for its default, or remove the grant"


def _check_grant(table: dict[str, Any], path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    for key in ("methods", "paths", "inject"):
        if key in table and table.get("intercept") is not True:
            yield (*path, key), "needs the request's head, which TLS hides; write intercept = true beside it"
    if "private" in table and not table.get("hosts"):
        yield (
            (*path, "private"),
            "says what hosts may resolve to, and there are none; write hosts, or use addresses",
        )
    if "preset" in table and (table.get("hosts") or table.get("addresses")):
        yield (
            (*path, "preset"),
            "covers every public host already; write hosts and addresses in a grant of their own",
        )
