"""What the lab's sites hand out, made in memory: a git repository, a wheel with its index, an npm package."""

import base64
import hashlib
import io
import json
import tarfile
import zipfile
import zlib
from typing import Final

MADE_AT_S: Final = 1_700_000_000
WHEEL: Final = "stockade_greeting-1.0-py3-none-any.whl"
PACKAGE: Final = "stockade-greeting"
REPOSITORY: Final = "/acme/greeting.git"
_GREETING: Final = b"Hello from inside the lab.\n"

type Files = dict[str, bytes]


def repository() -> Files:
    """Return a bare repository of one commit, as the files of git's dumb protocol (gitprotocol-http(5))."""
    files: Files = {}

    def store(kind: str, body: bytes) -> str:
        whole = f"{kind} {len(body)}".encode() + b"\0" + body
        name = hashlib.sha1(whole, usedforsecurity=False).hexdigest()
        files[f"/objects/{name[:2]}/{name[2:]}"] = zlib.compress(whole)
        return name

    blob = store("blob", _GREETING)
    tree = store("tree", b"100644 README\0" + bytes.fromhex(blob))
    who = f"Stockade lab <lab@example.com> {MADE_AT_S} +0000"
    commit = store("commit", f"tree {tree}\nauthor {who}\ncommitter {who}\n\ngreeting: say hello\n".encode())
    files["/HEAD"] = b"ref: refs/heads/main\n"
    files["/info/refs"] = f"{commit}\trefs/heads/main\n".encode()
    files["/objects/info/packs"] = b"\n"
    return {REPOSITORY + path: body for path, body in files.items()}


def wheel() -> bytes:
    """Return a wheel of one module (PEP 427)."""
    folder = "stockade_greeting-1.0.dist-info"
    files = {
        "stockade_greeting.py": b'TEXT = "Hello from inside the lab."\n',
        f"{folder}/METADATA": b"Metadata-Version: 2.1\nName: stockade-greeting\nVersion: 1.0\n",
        f"{folder}/WHEEL": b"Wheel-Version: 1.0\nGenerator: lab\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    lines = []
    for path, body in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(body).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(body)}\n")
    record = f"{folder}/RECORD"
    files[record] = "".join([*lines, f"{record},,\n"]).encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, body in files.items():
            archive.writestr(zipfile.ZipInfo(path, (2024, 1, 1, 0, 0, 0)), body)
    return out.getvalue()


def python_index(wheel_body: bytes) -> Files:
    """Return the index pages of the one package (PEP 503); its file lives on another host."""
    digest = hashlib.sha256(wheel_body).hexdigest()
    place = f"https://files.pythonhosted.org/packages/{WHEEL}#sha256={digest}"
    return {
        "/simple/": f'<!DOCTYPE html><a href="/simple/{PACKAGE}/">{PACKAGE}</a>\n'.encode(),
        f"/simple/{PACKAGE}/": f'<!DOCTYPE html><a href="{place}">{WHEEL}</a>\n'.encode(),
    }


def npm_registry() -> Files:
    """Return one npm package: its document and its tarball."""
    manifest = {"name": PACKAGE, "version": "1.0.0", "main": "index.js", "license": "Apache-2.0"}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for path, body in (
            ("package/package.json", json.dumps(manifest).encode()),
            ("package/index.js", b'module.exports = "Hello from inside the lab.";\n'),
        ):
            member = tarfile.TarInfo(path)
            member.size, member.mtime, member.mode = len(body), MADE_AT_S, 0o644
            archive.addfile(member, io.BytesIO(body))
    tarball = out.getvalue()
    path = f"/{PACKAGE}/-/{PACKAGE}-1.0.0.tgz"
    sha512 = base64.b64encode(hashlib.sha512(tarball).digest()).decode()
    held = {
        "tarball": f"https://registry.npmjs.org{path}",
        "integrity": f"sha512-{sha512}",
        "shasum": hashlib.sha1(tarball, usedforsecurity=False).hexdigest(),
    }
    document = {
        "name": PACKAGE,
        "dist-tags": {"latest": "1.0.0"},
        "versions": {"1.0.0": {**manifest, "dist": held}},
    }
    return {f"/{PACKAGE}": json.dumps(document).encode(), path: tarball}


def sites() -> dict[str, Files]:
    """Return host -> path -> body for every site that hands something out."""
    wheel_body = wheel()
    return {
        "github.com": repository(),
        "pypi.org": python_index(wheel_body),
        "files.pythonhosted.org": {f"/packages/{WHEEL}": wheel_body},
        "registry.npmjs.org": npm_registry(),
    }
