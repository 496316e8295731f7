"""Directories that are missing, full, forbidden, of another kind or damaged: the error says which file, and what was whole stays so."""

import contextlib
import errno
import json
import os
import pathlib
import shutil
import subprocess

import numpy as np
import pytest

import sapwood as sw
from conftest import clustered, run_child

ROWS = clustered(600, 16)
OPTIONS = {"split_threshold": 32, "merge_threshold": 4, "branching": 8}
OPENERS = [sw.Reader, sw.load, sw.load_checkpoint, sw.Writer, sw.Index.open]


def fill(path, commits=3):
    """A directory with checkpoints of 200, 400 and 600 rows, all kept."""
    with sw.Writer(path, 16, "l2", keep=9, **OPTIONS) as writer:
        for number in range(commits):
            some = np.arange(200 * number, 200 * number + 200)
            writer.add(ROWS[some], some)
            writer.balance()
            writer.commit()


@pytest.fixture
def path(tmp_path):
    fill(tmp_path / "index")
    return tmp_path / "index"


def crc32c(data):
    """CRC-32C (Castagnoli), bit by bit: FORMAT.md's, from its definition and not from the library."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def forge(path, version, /, **changes):
    """Changes a manifest and makes its checksum right. A change is a value, or a function that changes the old one in place."""
    file = path / "manifests" / f"{version:06}.json"
    manifest = json.loads(file.read_text(encoding="utf-8"))["manifest"]
    for key, change in changes.items():
        if callable(change):
            change(manifest[key])
        else:
            manifest[key] = change
    text = json.dumps(manifest)
    file.write_text(f'{{"crc32c": "{crc32c(text.encode()):08x}", "manifest": {text}}}', encoding="utf-8")
    return file


def assert_whole(path, version):
    """That a checkpoint is as `fill` made it."""
    with sw.Reader(path, version) as reader:
        count = 200 * version
        assert reader.ids().tolist() == list(range(count)) and reader.get(np.arange(count)).tobytes() == ROWS[:count].tobytes()
        assert reader.search(ROWS[:count:50], 1, beam=10**9).ids[:, 0].tolist() == list(range(0, count, 50))
        reader.validate()


def test_a_directory_that_is_not_there(tmp_path):
    missing = tmp_path / "missing"
    for opener in OPENERS:
        with pytest.raises(FileNotFoundError, match="missing"):
            opener(missing)
        assert not missing.exists()
    empty = tmp_path / "empty"
    empty.mkdir()
    for opener in OPENERS:
        with pytest.raises(FileNotFoundError, match="no checkpoint") as caught:
            opener(empty)
        assert caught.value.errno == errno.ENOENT and str(empty) in str(caught.value.filename)
    assert list(empty.iterdir()) == []


def test_a_file_in_the_place_of_the_directory(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"mine")
    for call in [*OPENERS, lambda path: sw.Writer(path, 4), sw.Index(4).save]:
        for name in (file, file / "below"):
            with pytest.raises(OSError, match="file") as caught:
                call(name)
            assert not isinstance(caught.value, PermissionError)
    assert file.read_bytes() == b"mine"


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may do everything")
def test_a_directory_without_permission(path):
    for folder in (path, path / "segments", path / "manifests"):
        writer = sw.Writer(path)
        writer.add(ROWS[:1] + 1, [5000])
        folder.chmod(0o500)
        try:
            with pytest.raises(PermissionError):
                writer.commit()
            assert_whole(path, 3)
        finally:
            folder.chmod(0o700)
            writer.close()
    path.chmod(0)
    try:
        for opener in OPENERS:
            with pytest.raises(PermissionError):
                opener(path)
    finally:
        path.chmod(0o700)
    assert_whole(path, 3)


@contextlib.contextmanager
def small_disk(path):
    """A file system of 3 MB; what asks for it is skipped where it isn't permitted."""
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=3m", "sapwood-test", str(path)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("mounting a small file system isn't permitted")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True, capture_output=True)


def test_a_full_disk(tmp_path):
    with small_disk(tmp_path / "disk") as disk:
        fill(disk / "index")
        writer = sw.Writer(disk / "index", keep=9)
        many = clustered(30_000, 16, seed=1)
        writer.add(many, np.arange(10_000, 40_000))
        ballast = disk / "ballast"
        for left in (0, 20_000, 200_000, 1_000_000):
            # Room for some of the steps of a commit, and not for all.
            ballast.write_bytes(b"")
            ballast.write_bytes(bytes(max(0, shutil.disk_usage(disk).free - left)))
            with pytest.raises(OSError, match="index") as caught:
                writer.commit()
            assert caught.value.errno == errno.ENOSPC
            for version in (1, 2, 3):
                assert_whole(disk / "index", version)
            assert len(writer) == 30_600 and writer.search(many[7], 1, beam=10**9).ids.tolist() == [10_007]
        ballast.unlink()
        writer.remove(np.arange(10_100, 40_000))
        assert writer.commit().rows == 700
        assert len(sw.Reader(disk / "index")) == 700 and not list((disk / "index").rglob("*.tmp"))
        writer.validate()
        writer.close()
        sw.load_checkpoint(disk / "index").validate()


@pytest.mark.skipif(os.name != "posix", reason="needs a limit of the length of files")
def test_files_that_may_not_grow(path):
    script = """
        import errno, resource, signal, sys
        import numpy as np, sapwood as sw

        path = sys.argv[1]
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        writer = sw.Writer(path, keep=9)
        many = np.random.default_rng(0).standard_normal((20_000, 16), dtype=np.float32)
        writer.add(many, np.arange(10_000, 30_000))
        for limit in (0, 100, 5000, 50_000, 500_000):
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
            try:
                writer.commit()
            except OSError as error:
                assert error.errno == errno.EFBIG and path in error.filename, error
            else:
                raise AssertionError(limit)
            assert len(writer) == 20_600
            assert sw.load_checkpoint(path).version == 3
            sw.load_checkpoint(path).validate()
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert writer.commit().rows == 20_600
        writer.close()
        with sw.Reader(path) as reader:
            reader.validate()
            assert reader.get(np.arange(10_000, 30_000)).tobytes() == many.tobytes()
    """
    run_child(script, path)
    for version in (1, 2, 3):
        assert_whole(path, version)


def test_a_newer_format(path):
    file = forge(path, 3, format=2, library="9.9.9")
    for opener in OPENERS:
        with pytest.raises(sw.FormatError, match=r"format 2 by Sapwood 9\.9\.9.*upgrade") as caught:
            opener(path)
        assert str(file) in str(caught.value)
    # Of a newer format nothing else is understood.
    file.write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    text = '{"format": 7}'
    file.write_text(f'{{"crc32c": "{crc32c(text.encode()):08x}", "manifest": {text}}}', encoding="utf-8")
    with pytest.raises(sw.FormatError, match="format 7"):
        sw.Reader(path)
    assert_whole(path, 2)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"dim": 17}, "dim: expected 16, as in the checkpoint, got 17"),
        ({"metric": "cosine"}, 'metric: expected "l2", as in the checkpoint, got "cosine"'),
        ({"storage": "int8"}, "storage: expected"),
        ({"spill": 0}, "spill: expected 1, as in the checkpoint, got 0"),
        ({"branching": 9}, "branching: expected 8"),
        ({"seed": 77}, "seed: expected"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_another_index_than_is_wanted(path, wanted, message):
    with pytest.raises(ValueError, match=message):
        sw.Writer(path, **wanted)
    assert_whole(path, 3)
    with sw.Writer(path, 16, "l2", **OPTIONS) as writer:
        writer.remove(0)
    assert len(sw.Reader(path)) == 599


def test_files_that_were_removed(path):
    manifest = path / "manifests" / "000003.json"
    needed = json.loads(manifest.read_text(encoding="utf-8"))["manifest"]
    files = [path / "segments" / f"{file['number']:06}.seg" for file in needed["segments"]]
    files += [path / "vectors" / f"{needed['generation']:06}-{file['slab']:02}.vec" for file in needed["vectors"]]
    for file in files:
        kept = file.read_bytes()
        file.unlink()
        for opener in (sw.Reader, sw.load, sw.Writer, sw.Index.open, lambda path: sw.load_checkpoint(path).validate()):
            with pytest.raises((OSError, sw.CorruptCheckpoint), match=file.name):
                opener(path)
        file.write_bytes(kept)
    assert_whole(path, 3)
    manifest.unlink()
    for opener in OPENERS:
        with pytest.raises((OSError, sw.CorruptCheckpoint), match=manifest.name):
            opener(path)
    assert_whole(path, 2)


HUGE = [2**32 - 1, 2**60, 2**63, 2**64 - 1]
FORGED = [
    *[{"dim": dim} for dim in (0, 15, 17, 70_000, -1, 2**60, "16", None)],
    *[{"metric": metric} for metric in ("", "L2", "hamming", None, 7)],
    *[{key: count} for key in ("rows", "next_id") for count in HUGE],
    *[{"number": number} for number in (0, 2, 4, 2**32)],
    *[{"generation": number} for number in (0, 2, 2**32 - 1)],
    *[{"root": lambda root, key=key, count=count: root.update({key: count})} for key in ("segment", "offset", "bytes") for count in HUGE],
    *[{"segments": lambda files, count=count: files[0].update(bytes=count)} for count in HUGE],
    *[{"segments": lambda files, count=count: files[0].update(number=count)} for count in (*HUGE, 0, "../../outside", "/etc/passwd")],
    *[{"vectors": lambda files, count=count: files[0].update(bytes=count)} for count in HUGE],
    *[{"vectors": lambda files, count=count: files[0].update(slab=count)} for count in (*HUGE, "../../outside")],
    *[{"config": lambda config, key=key: config.update({key: 2**60})} for key in ("spill", "split_threshold", "branching")],
    *[{"config": lambda config, kind=kind: config.update(storage=kind)} for kind in ("f64", "", "f16", "rabitq4", "rabitq9", 3)],
    *[{key: "nonsense"} for key in ("root", "segments", "vectors", "config", "created", "format")],
]


def test_forged_manifests(path):
    original = (path / "manifests" / "000003.json").read_bytes()
    for changes in FORGED:
        file = forge(path, 3, **changes)
        for opener in (sw.Reader, sw.load, sw.Writer):
            with pytest.raises((sw.CorruptCheckpoint, FileNotFoundError), match="index"):
                opener(path)
        file.write_bytes(original)
    assert_whole(path, 2)
    with sw.Writer(path, keep=9) as writer:
        assert len(writer) == 600
        writer.remove(0)
    assert_whole(path, 3)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "manifests/",
        "manifests/x.json",
        "manifests/000003.json\n",
        # The checksum of another name.
        "manifests/000002.json c4a73f35\n",
        "manifests/000003.json C4A73F35\n",
        "../manifests/000003.json c4a73f35\n",
        "manifests/../../x.json",
        "\0\0\0",
    ],
)
def test_a_newest_checkpoint_that_is_not_one(path, text):
    (path / "CURRENT").write_text(text)
    for opener in OPENERS:
        with pytest.raises(sw.CorruptCheckpoint, match="CURRENT"):
            opener(path)
    # Who names a checkpoint doesn't need the file, as the error says.
    for version in (1, 2, 3):
        assert_whole(path, version)
        assert len(sw.load(path, version)) == sw.load_checkpoint(path, version).rows == 200 * version
    assert sw.load_checkpoint(path, 1).versions == [1, 2, 3]
    with pytest.raises(ValueError, match="one of 1, 2, 3"):
        sw.Reader(path, 4)
    # Without it the newest manifest counts.
    (path / "CURRENT").unlink()
    assert_whole(path, 3)


DAMAGE = """
    import contextlib, pathlib, resource, sys, time
    import numpy as np, sapwood as sw

    path = pathlib.Path(sys.argv[1])
    names = sorted(file for file in path.rglob("*") if file.is_file() and file.name != "LOCK")
    queries = np.random.default_rng(0).standard_normal((3, 16)).astype(np.float32)
    everything = {"beam": 10**9, "rerank": 1 << 20}

    def answers(opener, version):
        with contextlib.closing(opener(path, version)) as handle:
            handle.validate()
            found = handle.search(queries, 5, **everything)
            return found.ids.tobytes(), found.distances.tobytes(), handle.ids().tobytes(), handle.get(handle.ids()).tobytes()

    versions = [None, 1, 2, 3]
    whole = {version: answers(sw.Reader, version) for version in versions}
    assert all(answers(sw.load, version) == whole[version] for version in versions)
    cases = raised = 0
    start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def write(path, version):
        return sw.Writer(path)

    def look(file, what):
        global cases, raised
        for opener in (sw.Reader, sw.load, write):
            for version in (None, 1) if opener is not write else (None,):
                began = time.monotonic()
                try:
                    got = answers(opener, version)
                except (sw.CorruptCheckpoint, sw.FormatError) as error:
                    assert file.name in str(error), (what, error)
                    raised += 1
                else:
                    assert got == whole[version], what
                assert time.monotonic() - began < 1, what
                cases += 1

    random = np.random.default_rng(1)
    for file in names:
        content = file.read_bytes()
        places = {0, 8, 12, 16, 63, 64, len(content) // 2, len(content) - 1, *random.integers(0, len(content), 12).tolist()}
        for place in sorted(place for place in places if place < len(content)):
            for bit in (0, 7):
                changed = bytearray(content)
                changed[place] ^= 1 << bit
                file.write_bytes(changed)
                look(file, (str(file), place, bit))
        for length in sorted({0, 1, 15, 63, 64, 4096, len(content) // 2, len(content) - 64, len(content) - 1}):
            if 0 <= length < len(content):
                file.write_bytes(content[:length])
                look(file, (str(file), "length", length))
        file.write_bytes(content)
    assert all(answers(sw.Reader, version) == whole[version] for version in versions)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start
    # Bytes on macOS, KiB elsewhere.
    grown *= 1 if sys.platform == "darwin" else 1024
    assert grown < 64 << 20, grown
    assert raised > cases / 4, (raised, cases)
    print(cases, raised)
"""


@pytest.mark.skipif(os.name != "posix", reason="needs the peak of a process's memory")
def test_damaged_bytes_and_cut_files_are_noticed_or_do_no_harm(path):
    run_child(DAMAGE, path)


def test_a_damaged_newest_checkpoint_leaves_the_older_ones(path):
    newest = path / "segments" / "000003.seg"
    assert newest.exists() and pathlib.Path(path / "CURRENT").read_text() == "manifests/000003.json c4a73f35\n"
    content = newest.read_bytes()
    newest.write_bytes(content[:64] + bytes(len(content) - 64))
    for opener in (sw.Reader, sw.load, sw.Writer):
        with pytest.raises(sw.CorruptCheckpoint, match=r"000003\.seg.*open an older one"):
            opener(path)
    assert sw.load_checkpoint(path).versions == [1, 2, 3]
    for version in (1, 2):
        assert_whole(path, version)
    # An older one, taken over into another directory, is written on.
    other = path.parent / "other"
    sw.load(path, version=2).save(other)
    with sw.Writer(other) as writer:
        assert len(writer) == 400
        writer.add(ROWS[400:], np.arange(400, 600))
    assert len(sw.Reader(other)) == 600
