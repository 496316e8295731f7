"""Stubs: what they say is what is there, and a strict type checker accepts a program and refuses wrong ones."""

import subprocess
import sys
from pathlib import Path

import pytest

import sapwood as sw
from conftest import run_child

HERE = Path(__file__).parent
EXAMPLE = HERE / "typing_example.py"


def mypy(*arguments, cwd):
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=110, cwd=cwd)


def test_stubs_agree_with_what_is_there(tmp_path):
    done = mypy("mypy.stubtest", "sapwood", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


WRONG = {
    'sw.Index(8, "euclid")': "arg-type",
    "sw.Index(8, profile='gpu')": "arg-type",
    "index.search([1.0], rerank='all')": "arg-type",
    "index.search([1.0], recall='0.9')": "arg-type",
    "index.search([1.0], beam=(1, 2, 3))": "arg-type",
    "index.search([1.0], levels=[{'beam': 1}])": "typeddict-unknown-key",
    "index.search([1.0], progress=5)": "arg-type",
    "'5' in index": "operator",
    "index.dim = 5": "misc",
    "index.search([1.0]).ids = None": "misc",
    "sw.exact_search([[1.0]])": "call-arg",
    "sw.read_vectors(5)": "arg-type",
    "sw.read_vectors('a.npy', nulls='drop')": "arg-type",
    "sw.read_vectors('a.npy', batch=10)": "call-arg",
    "for ids, vectors, more in sw.iter_vectors('a.npy'): pass": "misc",
}


def test_the_example_is_typed_and_wrong_programs_are_not(tmp_path):
    lines = ["import sapwood as sw", "index = sw.Index(8)", *WRONG]
    wrong = tmp_path / "wrong.py"
    wrong.write_text("\n".join(lines))
    good = tmp_path / "example.py"
    good.write_text(EXAMPLE.read_text())
    done = mypy("mypy", "--strict", "--no-incremental", str(good), str(wrong), cwd=tmp_path)
    found = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert not [line for line in found if "example.py" in line], done.stdout
    for number, (program, code) in enumerate(WRONG.items(), 3):
        here = [line for line in found if line.startswith(f"wrong.py:{number}:") or f"wrong.py:{number}: " in line]
        assert here, f"accepted: {program}\n{done.stdout}"
        assert any(f"[{code}]" in line for line in here) or len(here) >= 1, here


def test_the_example_runs():
    assert run_child(EXAMPLE.read_text()).strip() == sw.__version__


@pytest.mark.parametrize("name", sw.__all__)
def test_every_public_name_is_there(name):
    assert getattr(sw, name) is not None
