"""A real registry of this machine (docker-registry), started on a port of 127.0.0.1 for one test."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

# User "reader", password "paste:word" (bcrypt, the one form that docker-registry reads).
HTPASSWD = "reader:$2b$04$abcdefghijklmnopqrstuuX2UKjyQX7TIiaW4JLRpDUCexzBsXEoC"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@dataclass
class DockerRegistry:
    """One process; its storage and its port outlive it. ``more`` goes into the configuration as it is."""

    program: str
    folder: Path
    port: int = field(default_factory=free_port)
    more: str = ""
    tls: tuple[Path, Path] | None = None  # certificate and key
    secret: str = "the same before and after"  # signs the state of uploads

    @property
    def host(self):
        return f"127.0.0.1:{self.port}"

    def start(self):
        self.folder.mkdir(exist_ok=True)
        config = self.folder / "config.yml"
        tls = "".join(
            f"\n    {key}: {path}" for key, path in zip(("certificate", "key"), self.tls or (), strict=False)
        )
        config.write_text(
            f"""version: 0.1
log: {{level: error}}
storage:
  filesystem: {{rootdirectory: {self.folder}/storage}}
  delete: {{enabled: true}}
http:
  addr: {self.host}
  secret: {self.secret}
{"  tls:" + tls if tls else ""}
{self.more}
"""
        )
        self.log = (self.folder / "log").open("a")
        self.process = subprocess.Popen(
            [self.program, "serve", str(config)], stdout=self.log, stderr=self.log
        )
        while True:
            with (
                contextlib.suppress(ConnectionRefusedError),
                socket.create_connection(("127.0.0.1", self.port)),
            ):
                return self
            assert self.process.poll() is None, (self.folder / "log").read_text()
            time.sleep(0.02)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.log.close()

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.kill()
