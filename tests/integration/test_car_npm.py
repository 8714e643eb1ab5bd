"""The programs of IPFS read what cafcat writes, and cafcat what they write: @ipld/car, ipfs-car and the UnixFS
exporter, installed from npm for the occasion."""

import hashlib
import json
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cafcat.formats.car import CAR, CarReader
from cafcat.formats.car.cid import text_of
from cafcat.testing.formats import BytesArchive, pack
from tests.services import missing_service

PACKAGES = ("@ipld/car@5", "ipfs-car@3", "ipfs-unixfs-exporter@16")
LONG = (
    "with-a-name-so-long-that-a-few-thousand-of-them-do-not-fit-into-one-node-of-256-KiB-and-are-spread-over-shards"
)
INSTALL_SECONDS = 300
RUN_SECONDS = 120

LIST_AND_READ = """
import fs from 'node:fs'
import { createHash } from 'node:crypto'
import { CarReader } from '@ipld/car'
import { exporter } from 'ipfs-unixfs-exporter'

const reader = await CarReader.fromBytes(fs.readFileSync(process.argv[2]))
const roots = await reader.getRoots()
const store = { async * get (cid) { yield (await reader.get(cid)).bytes } }
const answer = { version: reader.version, roots: roots.map(String), blocks: [], files: {}, times: {} }
for await (const cid of reader.cids()) answer.blocks.push(cid.toString())
async function walk (entry, path) {
  if (entry.type === 'directory') {
    for await (const child of (entry.entries ?? entry.content)()) {
      await walk(await exporter(child.cid, store), path === '' ? child.name : path + '/' + child.name)
    }
    return
  }
  const hash = createHash('sha256')
  for await (const block of entry.content()) hash.update(block)
  answer.files[path] = hash.digest('hex')
  if (entry.unixfs?.mtime) answer.times[path] = Number(entry.unixfs.mtime.secs)
}
await walk(await exporter(roots[0], store), '')
console.log(JSON.stringify(answer))
"""


@pytest.fixture(scope="module")
def npm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the packages are installed."""
    if shutil.which("npm") is None:
        missing_service("npm is not there: the programs of IPFS are not tried")
    folder = tmp_path_factory.mktemp("npm")
    (folder / "package.json").write_text('{"private": true, "type": "module"}')
    (folder / "read.mjs").write_text(LIST_AND_READ)
    command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", *PACKAGES]
    installed = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    if installed.returncode:
        missing_service(f"npm cannot install the programs of IPFS: {installed.stderr[-300:]}")
    return folder


def run(npm: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=npm, capture_output=True, text=True, timeout=RUN_SECONDS)
    assert done.returncode == 0, done.stderr
    return done.stdout


def answer_of(npm: Path, data: bytes) -> Any:
    (npm / "cafcat.car").write_bytes(data)
    return json.loads(run(npm, "node", "read.mjs", "cafcat.car"))


def files() -> list[tuple[str, bytes, int | None]]:
    rng = random.Random(3)
    found: list[tuple[str, bytes, int | None]] = [
        ("empty", b"", None),
        ("folder/small", b"hello", 1_700_000_000_123_456_789),
        ("folder/one mebibyte", rng.randbytes(1 << 20), 1),
        ("folder/large", rng.randbytes(3_500_000), 1_700_000_000_123_456_789),
        ("zeros", bytes(3 << 20), None),
        ("ünïcode/日本", b"name", None),
    ]
    return found + [(f"many/{LONG}-{n}", b"%d" % n, None) for n in range(2500)]


def test_ipld_car_and_the_unixfs_exporter_read_what_cafcat_writes(npm: Path) -> None:
    data, _, _ = pack(CAR, files())
    answer = answer_of(npm, data)
    reader = CarReader(BytesArchive(data))
    assert answer["version"] == 2
    assert answer["roots"] == [text_of(root) for root in reader.layout.roots]
    assert answer["blocks"] == [text_of(section.cid) for section in reader.sections()]
    assert answer["files"] == {path: hashlib.sha256(content).hexdigest() for path, content, _ in files()}
    assert answer["times"] == {"folder/large": 1_700_000_000}


@pytest.mark.slow
def test_an_empty_archive_is_an_empty_directory(npm: Path) -> None:
    data, _, _ = pack(CAR, [])
    assert answer_of(npm, data)["files"] == {}


@pytest.mark.slow
def test_ipfs_car_unpacks_what_cafcat_writes(npm: Path) -> None:
    data, _, _ = pack(CAR, files())
    (npm / "unpack.car").write_bytes(data)
    run(npm, "npx", "ipfs-car", "unpack", "unpack.car", "--output", "unpacked")
    for path, content, _ in files():
        assert (npm / "unpacked" / path).read_bytes() == content


@pytest.mark.slow
def test_ipfs_car_packs_what_cafcat_reads_and_both_give_one_root(npm: Path) -> None:
    """The same tree has the same root CID: leaves, widths and shards are those of the profile unixfs-v1-2025."""
    tree = {path: content for path, content, _ in files()}
    for path, content in tree.items():
        target = npm / "tree" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    run(npm, "npx", "ipfs-car", "pack", "tree", "--no-wrap", "--output", "packed.car")
    theirs = (npm / "packed.car").read_bytes()
    reader = CarReader(BytesArchive(theirs))
    entries = list(reader.entries())
    assert {entry.path: b"".join(reader.open(entry)) for entry in entries} == tree
    for entry in entries:
        span = theirs[entry.start_byte : entry.end_byte]
        assert (span if entry.decoding is None else b"".join(CAR.decode(iter((span,)), entry))) == tree[entry.path]
    ours, _, _ = pack(CAR, [(path, content, None) for path, content in tree.items()])
    assert CarReader(BytesArchive(ours)).layout.roots == reader.layout.roots
