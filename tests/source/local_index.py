"""A package index on 127.0.0.1, and tiny wheels to put on it."""

from __future__ import annotations

import hashlib
import html
import io
import json
import random
import threading
import zipfile
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from packaging.utils import canonicalize_name

X86 = "manylinux_2_27_x86_64"
ARM = "manylinux_2_27_aarch64"


def wheel_file(name="nvidia-demo-cu12", version="1.0", tag=X86, python="py3-none"):
    return f"{name.replace('-', '_')}-{version}-{python}-{tag}.whl"


def wheel_bytes(file, members=None, requires=(), noise=0):
    """A wheel in memory: ``members`` are {path: bytes}, ``noise`` adds that many incompressible bytes."""
    name, version = file.split("-")[:2]
    out = io.BytesIO()
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
    metadata += [f"Requires-Dist: {text}" for text in requires]
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in (members or {"nvidia/demo/lib/libdemo.so.1": b"\x7fELF demo"}).items():
            archive.writestr(path, content)
        if noise:
            archive.writestr("nvidia/demo/lib/noise.bin", random.Random(0).randbytes(noise))
        archive.writestr(f"{name}-{version}.dist-info/METADATA", "\n".join(metadata) + "\n")
    return out.getvalue()


@dataclass
class Served:
    content: bytes
    sha256: str | None
    yanked: bool = False


@dataclass
class LocalIndex:
    """The index and its switches. ``log`` holds (path, Range header or "", If-Range header or "")."""

    form: str = "json"
    ignore_range: bool = False
    etag: bool = True
    statuses: list[int] = field(default_factory=list)  # answers to the next file requests
    cuts: list[int] = field(default_factory=list)  # bytes after which the next bodies break off
    claimed_length: int | None = None
    wrong_range: bool = False  # answer a Range with 206 and another range
    gate: threading.Event | None = None  # the second half of a body waits for it
    base: str = ""  # what the addresses of files begin with
    log: list[tuple[str, str, str]] = field(default_factory=list)
    users: dict[str, str] = field(default_factory=dict)  # path: Authorization header of the last request
    files: dict[str, Served] = field(default_factory=dict)
    url: str = ""

    def add(self, file, content=None, *, sha256="", yanked=False, **build):
        content = wheel_bytes(file, **build) if content is None else content
        digest = hashlib.sha256(content).hexdigest() if sha256 == "" else sha256
        self.files[file] = Served(content, digest, yanked)
        return content

    def requests_of(self, ending):
        return [entry for entry in self.log if entry[0].endswith(ending)]

    def page(self, project):
        listed = {f: s for f, s in self.files.items() if canonicalize_name(f.split("-")[0]) == project}
        if not listed:
            return None
        if self.form == "json":
            files = [
                {
                    "filename": file,
                    "url": f"{self.base}/files/{file}",
                    "hashes": {"sha256": served.sha256} if served.sha256 else {},
                    "size": len(served.content),
                    "yanked": served.yanked,
                }
                for file, served in listed.items()
            ]
            body = {"meta": {"api-version": "1.1"}, "name": project, "versions": [], "files": files}
            return "application/vnd.pypi.simple.v1+json", json.dumps(body).encode()
        links = [
            f'<a href="{self.base}/files/{file}{f"#sha256={served.sha256}" if served.sha256 else ""}"'
            f"{' data-yanked=' + chr(34) + chr(34) if served.yanked else ''}>{html.escape(file)}</a>"
            for file, served in listed.items()
        ]
        return "text/html", f"<!DOCTYPE html><html><body>{'<br>'.join(links)}</body></html>".encode()

    def __enter__(self):
        index = self

        class Handler(_Handler):
            local = index

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/simple"
        return self

    def __exit__(self, *_):
        if self.gate:
            self.gate.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    local: LocalIndex

    def log_message(self, *_):
        pass

    def do_GET(self):
        path = urlsplit(self.path).path  # a request to a proxy holds the whole address
        self.local.log.append((path, self.headers.get("Range", ""), self.headers.get("If-Range", "")))
        self.local.users[path] = self.headers.get("Authorization", "")
        if path.startswith("/files/"):
            self._file(path.removeprefix("/files/"))
            return
        page = self.local.page(path.removeprefix("/simple/").strip("/"))
        if page is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Type", page[0])
        self.send_header("Content-Length", str(len(page[1])))
        self.end_headers()
        self.wfile.write(page[1])

    def _file(self, name):
        local, served = self.local, self.local.files.get(name)
        if local.statuses:
            self.send_error(local.statuses.pop(0))
            return
        if served is None:
            self.send_error(404)
            return
        body, start = served.content, self._start()
        if start >= len(body):
            self.send_error(416)
            return
        if start and local.wrong_range:
            start -= 1
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        if local.etag:
            self.send_header("ETag", self._etag(name))
        body = body[start:]
        self.send_header("Content-Length", str(local.claimed_length or len(body)))
        self.end_headers()
        self._send(body)

    def _send(self, body):
        local = self.local
        if local.cuts:
            body = body[: local.cuts.pop(0)]
        half = len(body) // 2 if local.gate else len(body)
        try:
            self.wfile.write(body[:half])
            if local.gate:
                self.wfile.flush()
                local.gate.wait(60)
                self.wfile.write(body[half:])
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _start(self):
        asked, only_if = self.headers.get("Range", ""), self.headers.get("If-Range")
        if self.local.ignore_range or not asked or (only_if and only_if != self._etag(self.path)):
            return 0
        return int(asked.removeprefix("bytes=").rstrip("-"))

    def _etag(self, path):
        served = self.local.files[path.rpartition("/")[2]]
        return f'"{hashlib.md5(served.content, usedforsecurity=False).hexdigest()}"'
