"""Programs of IPFS read cafcat's CARs, and cafcat reads theirs.

The packages @ipld/car, ipfs-car and the UnixFS exporter are installed from npm for these tests.
"""

import hashlib
import json
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cafcat.formats.car import CAR, CarReader
from cafcat.formats.car.cid import cid_to_text
from cafcat.testing.formats import BytesArchive, pack
from tests.worlds.servers.services import missing_service

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
        missing_service("npm is missing: the programs of IPFS are not tested")
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


@pytest.mark.slow
def test_ipld_car_and_the_unixfs_exporter_read_cars_of_cafcat(npm: Path) -> None:
    data, _, _ = pack(CAR, files())
    answer = answer_of(npm, data)
    reader = CarReader(BytesArchive(data))
    assert answer["version"] == 2
    assert answer["roots"] == [cid_to_text(root) for root in reader.layout.roots]
    assert answer["blocks"] == [cid_to_text(section.cid) for section in reader.sections()]
    assert answer["files"] == {path: hashlib.sha256(content).hexdigest() for path, content, _ in files()}
    assert answer["times"] == {"folder/large": 1_700_000_000}


def root_by_ipfs_car(npm: Path, tree: dict[str, bytes]) -> tuple[bytes, ...]:
    shutil.rmtree(npm / "given", ignore_errors=True)
    for path, content in tree.items():
        (npm / "given" / path).parent.mkdir(parents=True, exist_ok=True)
        (npm / "given" / path).write_bytes(content)
    run(npm, "npx", "ipfs-car", "pack", "given", "--no-wrap", "--output", "given.car")
    return CarReader(BytesArchive((npm / "given.car").read_bytes())).layout.roots


def root_by_cafcat(tree: dict[str, bytes], modified_ns: int | None) -> tuple[bytes, ...]:
    data, _, _ = pack(CAR, [(path, content, modified_ns) for path, content in tree.items()])
    return CarReader(BytesArchive(data)).layout.roots


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tree", "modified_ns", "same"),
    [
        ({"a": b"x" * (1 << 20), "b/c": b"small"}, 1, True),
        ({"a": b"x" * ((1 << 20) + 1), "b/c": b"small"}, 1, False),
        ({"a": b"x" * ((1 << 20) + 1), "b/c": b"small"}, None, True),
        ({f"{n}": b"" for n in range(1000)}, 1, True),
        ({f"{n}": b"" for n in range(1001)}, 1, False),
        ({f"{LONG * 2}-{n:04}": b"" for n in range(1000)}, 1, False),
        ({f"{LONG * 2}-{n:04}": b"" for n in range(1001)}, 1, True),
    ],
    ids=["1 MiB", "1 MiB and a time", "1 MiB and no time", "1,000", "1,001", "1,000 long", "1,001 long"],
)
def test_roots_equal_those_of_ipfs_car_in_documented_cases(
    npm: Path, tree: dict[str, bytes], modified_ns: int | None, same: bool
) -> None:
    assert (root_by_ipfs_car(npm, tree) == root_by_cafcat(tree, modified_ns)) is same


@pytest.mark.slow
def test_an_empty_archive_is_an_empty_directory(npm: Path) -> None:
    data, _, _ = pack(CAR, [])
    assert answer_of(npm, data)["files"] == {}


@pytest.mark.slow
def test_ipfs_car_unpacks_cars_of_cafcat(npm: Path) -> None:
    data, _, _ = pack(CAR, files())
    (npm / "unpack.car").write_bytes(data)
    run(npm, "npx", "ipfs-car", "unpack", "unpack.car", "--output", "unpacked")
    for path, content, _ in files():
        assert (npm / "unpacked" / path).read_bytes() == content


@pytest.mark.slow
def test_cafcat_reads_cars_of_ipfs_car_and_both_give_one_root(npm: Path) -> None:
    """Equal trees have equal root CIDs: leaves, widths and shards are those of the profile unixfs-v1-2025."""
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
