"""A registry that follows the specification where docker-registry does not, and breaks where a test wants it to."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
import socket
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from packager.registry.wire import Patience

# Enough tries for every break that a test makes, and pauses that cost nothing.
QUICK = Patience(attempts=4, pause=0.001, longest=0.01, asked=0.01)
USER, PASSWORD = "writer", "a:b c"


def digest(content):
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@dataclass
class FakeRegistry:
    """The registry and its switches. ``log`` has (method, path with query, headers) of every request."""

    blobs: dict[tuple[str, str], bytes] = field(default_factory=dict)  # by (repository, digest)
    manifests: dict[tuple[str, str], tuple[str, bytes]] = field(
        default_factory=dict
    )  # by (repository, target)
    uploads: dict[str, bytearray] = field(default_factory=dict)
    log: list = field(default_factory=list)
    statuses: dict[str, list] = field(default_factory=dict)  # method: [(status, headers)], used up in order
    cut_patch: list[int] = field(
        default_factory=list
    )  # keep so many bytes of the next larger PATCH, then break off
    take_patch: list[int] = field(default_factory=list)  # take so many bytes of the next larger PATCH
    forget: bool = False  # a broken upload is forgotten
    garble: bool = False  # a broken upload is as long as it was, and has other bytes
    vague: bool = False  # as distribution 2.x: the status of an upload always says 0-0
    cut_finish: int = 0  # so many PUTs are done, and their answers lost
    cut_get: list[int] = field(default_factory=list)  # send so many bytes of the next blob, then break off
    no_range: bool = False
    together: threading.Barrier | None = None  # a blob is sent when as many are asked for at once
    least_chunk: int = 0
    relative: bool = False  # Location without a host
    subject: bool = True  # the referrers API is there
    redirect: str = ""  # where blobs are
    realm: str = ""  # a token server's address; "basic" for user and password
    token_life: int = 300
    granted: list = field(default_factory=list)  # scopes of the tokens that were given
    tokens: dict[str, set] = field(default_factory=dict)
    deny: frozenset[str] = frozenset()  # repositories that no token is good for
    secret: frozenset[str] = frozenset()  # repositories for which no token is given
    port: int = 0

    @property
    def host(self):
        return f"127.0.0.1:{self.port}"

    def methods(self, *wanted):
        return [method for method, _, _ in self.log if method in wanted]

    @contextmanager
    def serving(self):
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (_Handler,), {"registry": self}))
        server.daemon_threads = True
        server.handle_error = lambda *_: None  # connections break here by design
        self.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    registry: FakeRegistry

    def log_message(self, *_):
        pass

    def _answer(self, status, body=b"", **headers):
        self.send_response(status)
        for key, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(key.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _error(self, status, code):
        self._answer(status, json.dumps({"errors": [{"code": code, "message": f"about {code}"}]}).encode())

    def _break(self):
        """End the connection with a reset, as a router that forgets it does."""
        linger = (1).to_bytes(4, "little") + (0).to_bytes(4, "little")
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.wfile.flush()
        self.connection.close()
        self.close_connection = True

    def _serve(self):
        registry = self.registry
        parts = urlsplit(self.path)
        self.query = {key: value[0] for key, value in parse_qs(parts.query).items()}
        registry.log.append((self.command, self.path, dict(self.headers)))
        if parts.path == "/token":
            return self._token(parts)
        if queue := registry.statuses.get(self.command):
            status, headers = queue.pop(0)
            self._body()
            return self._answer(status, **headers)
        if not self._allowed(parts.path):
            self._body()
            return None
        if parts.path == "/v2/":
            return self._answer(200)
        match = re.fullmatch(r"/v2/(.+)/(manifests|blobs/uploads|blobs)/([^/]*)", parts.path)
        if not match:
            return self._answer(404)
        room = match[2].replace("/", "_")
        return getattr(self, f"_{room}_{self.command.lower()}")(match[1], match[3])

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815 - http.server's names

    def _body(self):
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    # what it wants to see

    def _allowed(self, path):
        registry = self.registry
        if not registry.realm:
            return True
        said = self.headers.get("Authorization", "")
        if registry.realm == "basic":
            if said == "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode():
                return True
            self._answer(401, WWW_Authenticate='Basic realm="here, and there"')
            return False
        needed = self._needed(path)
        if needed <= registry.tokens.get(said.removeprefix("Bearer "), {""}) and not (
            registry.deny & {scope.split(":")[1] for scope in needed}
        ):
            return True
        scope = f',scope="{" ".join(sorted(needed))}"' if needed else ""
        self._answer(401, WWW_Authenticate=f'Bearer realm="{registry.realm}",service="fake"{scope}')
        return False

    def _needed(self, path):
        match = re.match(r"/v2/(.+?)/(manifests|blobs)/", path)
        if not match:
            return set()
        action = "pull" if self.command in {"GET", "HEAD"} else "push"
        other = self.query.get("from")
        return {f"repository:{match[1]}:{action}"} | ({f"repository:{other}:pull"} if other else set())

    def _token(self, parts):
        registry = self.registry
        form = parse_qs(self._body().decode() if self.command == "POST" else parts.query)
        basic = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        refresh = form.get("refresh_token", [""])[0]
        if refresh != "identity" and self.headers.get("Authorization") != basic:
            return self._error(401, "UNAUTHORIZED")
        scopes = [scope for text in form.get("scope", []) for scope in text.split()]
        if registry.secret & {scope.split(":")[1] for scope in scopes}:
            return self._error(403, "DENIED")
        registry.granted.append(tuple(scopes))
        token = secrets.token_hex(8)
        registry.tokens[token] = {
            f"{scope.rpartition(':')[0]}:{action}"
            for scope in scopes
            for action in scope.rpartition(":")[2].split(",")
        }
        key = "access_token" if self.command == "POST" else "token"
        return self._answer(200, json.dumps({key: token, "expires_in": registry.token_life}).encode())

    # manifests

    def _manifests_get(self, name, target):
        found = self.registry.manifests.get((name, target))
        if found is None:
            return self._error(404, "MANIFEST_UNKNOWN")
        return self._answer(200, found[1], Content_Type=found[0], Docker_Content_Digest=digest(found[1]))

    _manifests_head = _manifests_get

    def _manifests_put(self, name, target):
        content = self._body()
        kind = self.headers["Content-Type"]
        fields = json.loads(content)
        for entry in [*fields.get("layers", []), *([fields["config"]] if "config" in fields else [])]:
            if (name, entry["digest"]) not in self.registry.blobs:
                return self._error(400, "MANIFEST_BLOB_UNKNOWN")
        for entry in fields.get("manifests", []):
            if (name, entry["digest"]) not in self.registry.manifests:
                return self._error(400, "MANIFEST_UNKNOWN")
        for key in (target, digest(content)):
            self.registry.manifests[name, key] = (kind, content)
        subject = fields.get("subject", {}).get("digest") if self.registry.subject else None
        more = {"OCI_Subject": subject} if subject else {}
        return self._answer(201, Docker_Content_Digest=digest(content), **more)

    # blobs

    def _blobs_head(self, name, target):
        found = self.registry.blobs.get((name, target))
        if found is None:
            return self._error(404, "BLOB_UNKNOWN")
        return self._answer(200, found)

    def _blobs_get(self, name, target):
        if self.registry.together:
            self.registry.together.wait(10)
        registry = self.registry
        if registry.redirect:
            return self._answer(307, Location=f"{registry.redirect}/{target}")
        found = registry.blobs.get((name, target))
        if found is None:
            return self._error(404, "BLOB_UNKNOWN")
        match = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(match[1]) if match and not registry.no_range else 0
        if start >= len(found) > 0:
            return self._answer(416)
        ranged = {"Content_Range": f"bytes {start}-{len(found) - 1}/{len(found)}"} if start else {}
        self.send_response(206 if start else 200)
        for key, value in {"Content-Length": len(found) - start, **ranged}.items():
            self.send_header(key.replace("_", "-"), str(value))
        self.end_headers()
        if registry.cut_get:
            self.wfile.write(found[start : start + registry.cut_get.pop(0)])
            return self._break()
        self.wfile.write(found[start:])
        return None

    # uploads

    def _where(self, name, upload):
        path = f"/v2/{name}/blobs/uploads/{upload}?state=a%2Bb"
        return path if self.registry.relative else f"http://{self.headers['Host']}{path}"

    def _blobs_uploads_post(self, name, _):
        registry = self.registry
        mount, other = self.query.get("mount"), self.query.get("from")
        if mount and (other, mount) in registry.blobs:
            registry.blobs[name, mount] = registry.blobs[other, mount]
            return self._answer(201, Location="/", Docker_Content_Digest=mount)
        upload = secrets.token_hex(4)
        registry.uploads[upload] = bytearray()
        least = {"OCI_Chunk_Min_Length": str(registry.least_chunk)} if registry.least_chunk else {}
        return self._answer(202, Location=self._where(name, upload), **least)

    def _blobs_uploads_get(self, name, upload):
        if upload not in self.registry.uploads:
            return self._error(404, "BLOB_UPLOAD_UNKNOWN")
        length = 1 if self.registry.vague else len(self.registry.uploads[upload])
        return self._answer(204, Location=self._where(name, upload), Range=f"0-{max(length - 1, 0)}")

    def _blobs_uploads_patch(self, name, upload):
        registry = self.registry
        if upload not in registry.uploads:
            self._body()
            return self._error(404, "BLOB_UPLOAD_UNKNOWN")
        kept = registry.uploads[upload]
        start, end = map(int, self.headers["Content-Range"].split("-"))
        assert int(self.headers["Content-Length"]) == end - start + 1
        if start != len(kept):
            self._body()
            return self._answer(416, Location=self._where(name, upload), Range=f"0-{len(kept) - 1}")
        size = end - start + 1
        if registry.cut_patch and size > registry.cut_patch[0]:
            content = self.rfile.read(registry.cut_patch.pop(0))
            kept += bytes(len(content)) if registry.garble else content
            if registry.forget:
                del registry.uploads[upload]
            return self._break()
        content = self._body()
        taking = registry.take_patch and size > registry.take_patch[0]
        kept += content[: registry.take_patch.pop(0)] if taking else content
        return self._answer(202, Location=self._where(name, upload), Range=f"0-{len(kept) - 1}")

    def _blobs_uploads_put(self, name, upload):
        registry = self.registry
        if upload not in registry.uploads:
            return self._error(404, "BLOB_UPLOAD_UNKNOWN")
        content = bytes(registry.uploads.pop(upload)) + self._body()
        if digest(content) != self.query["digest"]:
            return self._error(400, "DIGEST_INVALID")
        registry.blobs[name, self.query["digest"]] = content
        if registry.cut_finish:
            registry.cut_finish -= 1
            return self._break()
        return self._answer(201, Location="/", Docker_Content_Digest=digest(content))

    def _blobs_uploads_delete(self, _, upload):
        self.registry.uploads.pop(upload, None)
        return self._answer(204)
