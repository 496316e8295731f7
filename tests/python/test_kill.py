"""A process that is killed at any moment leaves its last commit, or the one that was under way, row by row."""

import os
import random
import signal
import time

import numpy as np
import pytest

import sapwood as sw
from conftest import EXACT, STRESS, start_child

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="the system has no SIGKILL")

ROUNDS = 500 if STRESS else 20
DIM = 8
IDS = 400
OPTIONS = {"split_threshold": 32, "merge_threshold": 4, "branching": 8}
MOST_BYTES = 2 << 20
"""Far more than 400 rows need, far less than some hundreds of commits write."""

CHILD = """
    import os, sys
    import sapwood as sw
    sys.path.insert(0, sys.argv[1])
    from test_kill import OPTIONS, DIM, apply_step

    path, seed, position, keep, kind = sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]), sys.argv[6]
    if kind == "writer":
        writer = sw.Writer(path, DIM, "l2", keep=keep, cache_bytes=1 << 16, **OPTIONS)
    else:
        writer = sw.Index(DIM, "l2", path=path, keep=keep, **OPTIONS)
    while True:
        apply_step(writer, seed, position)
        position += 1
        version = writer.commit().version
        os.write(1, f"{version} {position}\\n".encode())
"""


class Model(dict):
    """What an index should hold, with the calls that change one."""

    def add(self, rows, ids):
        self.update(zip(ids.tolist(), rows, strict=True))

    def remove(self, ids):
        for id in ids.tolist():
            self.pop(id, None)

    def balance(self):
        pass


def apply_step(index, seed, position):
    """The changes between two commits: they follow from the seed and the step's number."""
    rng = np.random.default_rng((seed, position))
    for _ in range(rng.integers(1, 4)):
        count = rng.integers(1, 80)
        ids = rng.permutation(IDS)[:count]
        index.add(rng.standard_normal((count, DIM)).astype(np.float32), ids)
        index.remove(rng.permutation(IDS)[: rng.integers(0, 40)])
    # So that no state is that of the step before.
    index.add(np.full((1, DIM), position, np.float32), np.array([IDS]))
    if rng.integers(0, 4) == 0:
        index.balance()


def directory_files(path):
    """Lengths of all files, by name."""
    found = {}
    for folder, _, names in os.walk(path):
        for name in names:
            file = os.path.join(folder, name)
            found[os.path.relpath(file, path)] = os.path.getsize(file)
    return found


def assert_holds(index, model):
    """Row by row, and by a search that looks at every row."""
    ids = index.ids()
    assert ids.tolist() == sorted(model)
    stored = index.get(ids)
    assert stored.tobytes() == np.array([model[id] for id in ids.tolist()], np.float32).reshape(len(ids), DIM).tobytes()
    index.validate()
    if model:
        found = index.search(np.zeros(DIM, np.float32), len(model), **EXACT)
        assert sorted(found.ids.tolist()) == sorted(model)


def run_and_kill(path, seed, position, rng, keep):
    """Lets a child commit for a moment and kills it; what it has reported, the last first: (version, position)."""
    kind = rng.choice(["writer", "index"])
    with start_child(CHILD, os.path.dirname(__file__), path, seed, position, keep, kind) as child:
        # Now and then it is killed before its first commit has ended.
        early = rng.random() < 0.15
        first = b"" if early else child.stdout.readline()
        time.sleep(rng.uniform(0, 0.6) if early else rng.uniform(0, 0.15))
        assert child.poll() is None, child.stderr.read().decode()
        child.kill()
        rest, errors = child.communicate()
    assert not errors, errors.decode()
    lines = [line.split() for line in (first + rest).split(b"\n")[:-1]]
    return [(int(version), int(position)) for version, position in lines]


OPENERS = {
    "Reader": sw.Reader,
    "Writer": sw.Writer,
    "Index.open": sw.Index.open,
    "load": sw.load,
}


def look(path, opener, before, after):
    """Opens what was left; it must be `before` or `after`. Returns whether it is `after`, and the version."""
    with OPENERS[opener](path) as index:
        stamp = float(index.get(IDS)[0])
        is_after = stamp == float(after[IDS][0])
        assert_holds(index, after if is_after else before)
    version = sw.load_checkpoint(path).version
    # Whoever had the lock is gone.
    sw.Writer(path).close()
    return is_after, version


@pytest.mark.timeout(3600 if STRESS else 120)
def test_a_killed_writer_leaves_its_last_commit_or_the_one_under_way(tmp_path):
    path, seed, rng = str(tmp_path / "index"), 7, random.Random(7)
    with sw.Writer(path, DIM, "l2", **OPTIONS) as writer:
        apply_step(writer, seed, 0)
    model, position, version = Model(), 1, 1
    apply_step(model, seed, 0)
    held, held_model = None, None
    for round in range(ROUNDS):
        reports = run_and_kill(path, seed, position, rng, keep=1 + round % 3)
        reported = reports[-1] if reports else (version, position)
        while position < reported[1]:
            apply_step(model, seed, position)
            position += 1
        after = Model(model)
        apply_step(after, seed, position)
        is_after, version = look(path, list(OPENERS)[round % 4], model, after)
        assert version > reported[0] if is_after else version == reported[0]
        if is_after:
            model, position = after, position + 1
        files = directory_files(path)
        assert sum(files.values()) < MOST_BYTES, files
        assert sum(name.endswith(".tmp") for name in files) <= 2, files
        if held:
            # A checkpoint that somebody reads stays, whoever dies.
            assert_holds(held, held_model)
            held.close()
            held = None
        elif round % 3 == 0:
            held, held_model = sw.Reader(path, cache_bytes=0), Model(model)
    if held:
        held.close()
    with sw.Writer(path) as writer:
        assert_holds(writer, model)
        writer.remove(np.array([IDS]))
    assert not [name for name in directory_files(path) if name.endswith(".tmp")]
    assert sw.load_checkpoint(path).versions == [sw.load_checkpoint(path).version]


def test_a_writer_that_never_commits_leaves_nothing_when_killed(tmp_path):
    script = """
        import os, sys
        import numpy as np, sapwood as sw
        writer = sw.Writer(sys.argv[1], 4)
        writer.add(np.ones((500, 4)))
        os.kill(os.getpid(), 9)
    """
    with start_child(script, tmp_path) as child:
        assert child.wait(60) == -signal.SIGKILL
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        sw.Reader(tmp_path)
    assert sum(directory_files(tmp_path).values()) < 4096
    with sw.Writer(tmp_path, 4) as writer:
        assert len(writer) == 0
