"""A TCP proxy that cuts connections after so many bytes, in one direction or the other."""

from __future__ import annotations

import contextlib
import socket
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class CuttingProxy:
    """``up`` and ``down``: after how many bytes of a connection, to the server or from it, to cut; used up in order
    by connections that carry as many. ``on_cut`` is called before the ends learn of it.
    """

    target: int
    up: list[int] = field(default_factory=list)
    down: list[int] = field(default_factory=list)
    on_cut: object = None
    cuts: int = 0
    port: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def host(self):
        return f"127.0.0.1:{self.port}"

    @contextmanager
    def serving(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port = listener.getsockname()[1]
            threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
            yield self
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)

    def _accept(self, listener):
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                client.close()
                continue
            for source, sink, limits in ((client, server, self.up), (server, client, self.down)):
                threading.Thread(target=self._copy, args=(source, sink, limits), daemon=True).start()

    def _copy(self, source, sink, limits):
        passed = 0
        with contextlib.suppress(OSError):
            while piece := source.recv(1 << 14):
                with self.lock:
                    limit = limits.pop(0) if limits and passed + len(piece) > limits[0] else None
                if limit is not None:
                    sink.sendall(piece[: max(limit - passed, 0)])
                    if self.on_cut:
                        self.on_cut()
                    self.cuts += 1
                    break
                sink.sendall(piece)
                passed += len(piece)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
