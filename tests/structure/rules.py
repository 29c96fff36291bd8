"""What STYLE asks of every module, each rule a function from one module to the problems found in it."""

import ast
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

LAYERS = ("policy", "proxy", "firewall", "sandbox", "browser", "stockade")
"""Each may import itself and those before it."""

DOORS: dict[str, tuple[str, ...]] = {
    # library (as imported): the modules that may import it; a name that ends in `.*` is a package
    "cryptography": ("stockade.lab.authority",),
    "dns": ("proxy.dns_message",),
    "httptools": ("proxy.http1",),
    "idna": ("policy.host",),
    "publicsuffixlist": ("policy.pattern",),
    "pydantic": ("policy.document",),
    "pydantic_core": ("policy.document",),
    "pyroute2": ("firewall.link",),
    "rich": ("stockade.*",),
    "typer": ("stockade.*",),
}

IMPURE = {
    "asyncio", "ctypes", "dns", "fcntl", "http", "io", "logging", "mitmproxy", "multiprocessing", "os", "pathlib", "random",
    "secrets", "select", "selectors", "shutil", "signal", "socket", "ssl", "subprocess", "tempfile", "threading", "time",
}  # fmt: skip
"""No input, no output and no clock under policy/."""

RESOLVING = {
    "getaddrinfo", "gethostbyname", "gethostbyname_ex", "gethostbyaddr", "getnameinfo", "getfqdn", "create_connection",
    "open_connection", "urlopen", "urlretrieve",
}  # fmt: skip
"""Calls that turn a name into an address, or dial one, without the gate."""

FORBIDDEN_WORDS = {"manager", "helper", "util", "handler", "context", "info"}
DICTATED_NAMES = {"make_context", "info_name"}
"""Names that a method must have because a library calls it by them (click's Command)."""

MUTABLE_CALLS = {
    "list", "dict", "set", "bytearray", "defaultdict", "deque", "Counter", "OrderedDict", "ChainMap", "WeakValueDictionary",
    "WeakKeyDictionary", "WeakSet", "count", "cycle", "socket", "epoll", "Lock", "RLock", "Event", "Queue", "SimpleQueue",
    "ContextVar", "local", "Random", "open",
}  # fmt: skip
MUTATING_METHODS = {
    "append", "extend", "insert", "pop", "popitem", "popleft", "appendleft", "remove", "clear", "add", "discard", "update",
    "setdefault", "sort", "reverse", "difference_update", "intersection_update", "symmetric_difference_update",
}  # fmt: skip
LONG_LINES_COUNT = 400


@dataclass(frozen=True)
class Module:
    """One module of the product, parsed."""

    name: str
    text: str
    tree: ast.Module

    @property
    def layer(self) -> str:
        """The top-level package it belongs to."""
        return self.name.partition(".")[0]


def read(name: str, text: str) -> Module:
    return Module(name, text, ast.parse(text))


def product() -> list[Module]:
    """Every module of ours, by dotted name; a package is the module of its `__init__`."""
    modules = []
    for layer in LAYERS:
        for path in sorted((ROOT / layer).rglob("*.py")):
            dotted = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            modules.append(read(dotted, path.read_text()))
    return modules


def imported(module: Module) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything imported anywhere in it, inside functions and by `import_module` too."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, "." * node.level + (node.module or "")
            for alias in node.names:
                yield node.lineno, "." * node.level + f"{node.module or ''}.{alias.name}"
        elif isinstance(node, ast.Call) and node.args:
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in {"import_module", "__import__"}:
                yield node.lineno, literal_start(node.args[0])


def literal_start(node: ast.expr) -> str:
    """The text a string or f-string surely begins with; `?` when that cannot be told."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr) and node.values and isinstance(node.values[0], ast.Constant):
        return str(node.values[0].value)
    return "?"


def layers(module: Module) -> Iterator[str]:
    """Imports point down the list of layers and are absolute."""
    rank = LAYERS.index(module.layer)
    for line, name in imported(module):
        top = name.partition(".")[0]
        if name.startswith((".", "?")):
            yield f"{line}: {name}: import by absolute name, so that it can be seen what is imported"
        elif top in LAYERS and LAYERS.index(top) > rank:
            yield f"{line}: {module.layer} must not import {name}"
        elif top in {"tests", "bench", "docs"}:
            yield f"{line}: the product must not import {name}"


def purity(module: Module) -> Iterator[str]:
    """policy/ has no input, no output, no clock; the one file it may read is the packaged list of public suffixes."""
    if module.layer != "policy":
        return
    for line, name in imported(module):
        if name.partition(".")[0] in IMPURE:
            yield f"{line}: policy must not import {name}; let the caller pass in what it knows"
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in {"now", "utcnow", "today", "open", "print", "input"} and "PSLFILE" not in ast.unparse(node):
                yield f"{node.lineno}: policy must not call {called}()"


def doors(module: Module) -> Iterator[str]:
    """Each third-party library has its door; one without is not used."""
    for line, name in imported(module):
        top = name.partition(".")[0]
        if not top or top == "?" or top in LAYERS or top in sys.stdlib_module_names or top in {"tests", "bench", "docs"}:
            continue
        allowed = DOORS.get(top, ())
        if not any(module.name == door or (door.endswith(".*") and module.name.startswith(door[:-1])) for door in allowed):
            yield f"{line}: {top} is imported only by {', '.join(allowed) or 'nobody (see DOORS)'}"


def docstring(module: Module) -> Iterator[str]:
    """A module begins with one sentence; it is the module's caption in docs/map.md."""
    text = ast.get_docstring(module.tree)
    if not text:
        yield "1: no docstring"
        return
    first = " ".join(text.split("\n\n")[0].split())
    if not first.endswith("."):
        yield f"1: the docstring's first paragraph is not a sentence: {first!r}"
    if re.search(r"(?<!e\.g)(?<!i\.e)[.!?] [A-Z]", first):
        yield f"1: the docstring's first paragraph is more than one sentence: {first!r}"


def size(module: Module) -> Iterator[str]:
    """A long module says why in its docstring: a paragraph that begins `Long because`."""
    lines_count = len(module.text.splitlines())
    if lines_count > LONG_LINES_COUNT and "\n\nLong because" not in (ast.get_docstring(module.tree) or ""):
        yield f"1: {lines_count} lines, and no paragraph of its docstring says `Long because ...`"


def state(module: Module) -> Iterator[str]:
    """Nothing at module or class level changes.

    A list, dict, set or other mutable thing there is a `Final` in capitals; nothing in the module changes it; there is no
    `global`, and only functions without arguments may keep their one result (`functools.cache`). A field's default in one
    of pydantic's models is copied for each instance, so it may be a plain list.
    """
    constants: set[str] = set()
    models = "pydantic" in {name for _, name in imported(module)}
    classes = [node for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef) and not (models and node.bases)]
    bodies = [module.tree.body, *(node.body for node in classes)]
    for node in (statement for body in bodies for statement in body):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None or not is_mutable(node.value):
            continue
        target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
        name = target.id if isinstance(target, ast.Name) else ast.unparse(target)
        constants.add(name)
        final = isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation).removeprefix("typing.").startswith("Final")
        if not (name.isupper() and final) and not (name.startswith("__") and name.endswith("__")):
            yield f"{node.lineno}: {name} is mutable at module or class level: a constant is `NAME: Final = ...`"
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Global):
            yield f"{node.lineno}: global"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in MUTATING_METHODS and getattr(node.func.value, "id", "") in constants:
                yield f"{node.lineno}: {ast.unparse(node.func)}() changes a constant"
        elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            if getattr(node.value, "id", "") in constants:
                yield f"{node.lineno}: {ast.unparse(node)} changes a constant"
        elif isinstance(node, ast.AugAssign) and getattr(node.target, "id", "") in constants:
            yield f"{node.lineno}: {ast.unparse(node.target)} is changed"
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            caches = [d for d in node.decorator_list if re.search(r"\b(lru_)?cache\b", ast.unparse(d))]
            if caches and ast.unparse(node.args):
                yield f"{node.lineno}: {node.name} keeps results for its arguments: state that nobody owns"


def is_mutable(node: ast.expr) -> bool:
    if isinstance(node, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp | ast.GeneratorExp):
        return True
    if isinstance(node, ast.Call):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return called in MUTABLE_CALLS
    return False


def words(name: str) -> set[str]:
    """`HTTPInfo`, `http_infos` -> {http, info}."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)
    return {part.lower().removesuffix("s") for part in parts} | {part.lower() for part in parts}


def names(module: Module) -> Iterator[str]:
    """No name of ours says Manager, Helper, Util, Handler, Context or Info: they say nothing."""
    given: list[tuple[int, str]] = [(1, module.name.rpartition(".")[2])]
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            given.append((node.lineno, node.name))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            given.append((node.lineno, node.id))
        elif isinstance(node, ast.arg):
            given.append((node.lineno, node.arg))
    for line, name in given:
        if name not in DICTATED_NAMES and (bad := words(name) & FORBIDDEN_WORDS):
            yield f"{line}: {name}: {', '.join(bad)} says nothing; name what it is"


def dialling(module: Module) -> Iterator[str]:
    """Nothing resolves a name but proxy.resolver, and nothing dials one."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute | ast.Name):
            name = node.attr if isinstance(node, ast.Attribute) else node.id
        elif isinstance(node, ast.alias):
            name = node.name.rpartition(".")[2]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in RESOLVING:
            name = node.value  # getattr(socket, "getaddrinfo")
        else:
            continue
        if name in RESOLVING:
            yield f"{node.lineno}: {name}: names are resolved by proxy.resolver and dialled as a Pin by proxy.gate"


def catching(module: Module) -> Iterator[str]:
    """No bare except, and nothing caught whole only to be forgotten."""
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.ExceptHandler):
            continue
        if node.type is None:
            yield f"{node.lineno}: bare except"
        elif re.search(r"\b(Base)?Exception\b", ast.unparse(node.type)) and all(
            isinstance(s, ast.Pass | ast.Continue) or (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))
            for s in node.body
        ):
            yield f"{node.lineno}: every error is swallowed"


RULES: tuple[Callable[[Module], Iterator[str]], ...] = (
    layers, purity, doors, docstring, size, state, names, dialling, catching,
)  # fmt: skip
