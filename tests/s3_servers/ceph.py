"""Ceph RGW: a monitor, a manager, one OSD in memory and the gateway, without authentication between them."""

import os
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.s3_servers.base import ACCESS_KEY, SECRET_KEY, Command, ServerKind

PROGRAMS = ("ceph", "ceph-mon", "ceph-mgr", "ceph-osd", "radosgw", "radosgw-admin", "monmaptool")
PATIENCE_SECONDS = 60

SETTINGS = """
[global]
fsid = {fsid}
mon host = v1:127.0.0.1:{mon}
public addr = 127.0.0.1
auth cluster required = none
auth service required = none
auth client required = none
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pgp num = 1
mon warn on pool no redundancy = false
mon allow pool size one = true
mon max pg per osd = 1000
osd objectstore = memstore
memstore device bytes = 8589934592
osd crush chooseleaf type = 0
ms bind msgr2 = false
ms bind port min = {low}
ms bind port max = {high}
run dir = {folder}
admin socket = {folder}/$name.asok
log file = {folder}/$name.log
mon data = {folder}/mon
mgr data = {folder}/mgr
osd data = {folder}/osd
rgw data = {folder}/rgw
rgw frontends = beast endpoint=127.0.0.1:{s3}
rgw dynamic resharding = false
rgw enable usage log = false
mgr initial modules =
"""
DAEMON_PORTS = 16


class CephRGW(ServerKind):
    name = "ceph"
    title = "Ceph RGW"
    port_count = 2
    lacks = frozenset({"crc64", "conditional_writes", "conditional_reads"})

    def check(self) -> None:
        for program in PROGRAMS:
            self.program(program)

    def how_to_get(self) -> str:
        return "Debian: apt-get install radosgw ceph-mon ceph-osd ceph-mgr"

    def version(self) -> str:
        command = [self.program("radosgw"), "--version"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[2]

    def prepare(self, folder: Path, ports: Sequence[int]) -> Iterator[Command]:
        fsid, osd = str(uuid.uuid4()), str(uuid.uuid4())
        low = 20_000 + os.getpid() % 1000 * DAEMON_PORTS
        settings = SETTINGS.format(
            fsid=fsid, folder=folder, s3=ports[0], mon=ports[1], low=low, high=low + DAEMON_PORTS
        )
        self._config = folder / "ceph.conf"
        self._config.write_text(settings)
        for name in ("mon", "mgr", "osd", "rgw"):
            (folder / name).mkdir()
        place, monmap = f"[v1:127.0.0.1:{ports[1]}]", str(folder / "monmap")
        self._run("monmaptool", "--create", "--fsid", fsid, "--addv", "a", place, monmap)
        self._run("ceph-mon", "-i", "a", "--mkfs", "--monmap", monmap)
        yield self._daemon("ceph-mon", "-i", "a")
        self._run("ceph", "--connect-timeout", "30", "osd", "new", osd, "0")
        self._run("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", osd)
        yield self._daemon("ceph-osd", "-i", "0")
        yield self._daemon("ceph-mgr", "-i", "x")
        yield self._daemon("radosgw", "-n", "client.admin")

    def finish(self) -> None:
        user = ("--uid", "tests", "--display-name", "tests")
        keys = ("--access-key", ACCESS_KEY, "--secret-key", SECRET_KEY, "--max-buckets", "100000")
        self._run("radosgw-admin", "user", "create", *user, *keys)

    def _daemon(self, program: str, *arguments: str) -> Command:
        return Command([self.program(program), "-f", "-c", str(self._config), *arguments])

    def _run(self, program: str, *arguments: str) -> None:
        config = () if program == "monmaptool" else ("-c", str(self._config))
        command = [self.program(program), *config, *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE_SECONDS)
