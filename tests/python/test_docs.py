"""The examples of all docstrings run, and `help()` tells what the contract asks for."""

import doctest
import importlib
import inspect
import pkgutil
import re

import numpy as np
import pytest

import sapwood as sw
from conftest import clustered

NAMES = [name for name in sw.__all__ if not name.startswith("_")]
MEMBERS = [
    (f"{owner}.{name}", member)
    for owner in ("Index", "Filter")
    for name, member in inspect.getmembers(getattr(sw, owner))
    if not name.startswith("_")
]
COMPILED = [(name, getattr(sw, name)) for name in ("Index", "Filter", "Error", "exact_search", "read_vectors", "iter_vectors")] + MEMBERS
SECTIONS = {"add": "KeyboardInterrupt", "search": "TimeoutError", "get": "KeyError"}


def run(test):
    # What arrays print must not depend on who ran before.
    with np.printoptions(legacy=False):
        runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
        output = []
        runner.run(test, out=output.append)
    assert runner.failures == 0, "".join(output)
    return runner.tries


@pytest.mark.parametrize(("name", "thing"), COMPILED, ids=[name for name, _ in COMPILED])
def test_compiled_examples_run(name, thing):
    assert thing.__doc__, f"{name} has no docstring"
    test = doctest.DocTestParser().get_doctest(inspect.cleandoc(thing.__doc__), {}, name, None, 0)
    run(test)


@pytest.mark.parametrize("module", [module.name for module in pkgutil.iter_modules(sw.__path__) if module.name != "__main__"])
def test_examples_of_the_python_files_run(module):
    found = importlib.import_module(f"sapwood.{module}")
    for test in doctest.DocTestFinder(exclude_empty=True).find(found):
        run(test)


def test_the_package_s_own_example_runs():
    test = doctest.DocTestParser().get_doctest(sw.__doc__, {}, "sapwood", None, 0)
    assert run(test) >= 4


def test_there_are_examples_to_run():
    for name in ("Index", "Filter", "exact_search", "read_vectors", "iter_vectors", "SearchResult", "AddResult", "Rows"):
        assert ">>>" in getattr(sw, name).__doc__, name
    for name in ("add", "remove", "search", "get"):
        assert ">>>" in getattr(sw.Index, name).__doc__, name


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_says_what_it_is(name):
    doc = inspect.getdoc(getattr(sw, name))
    assert doc and len(doc.splitlines()[0]) < 160


def test_signatures_are_shown_with_real_defaults():
    search = inspect.signature(sw.Index.search)
    assert search.parameters["k"].default == 10
    assert search.parameters["rerank"].default == "bound"
    assert inspect.signature(sw.exact_search).parameters["metric"].default == "cosine"
    assert inspect.signature(sw.Index).parameters["metric"].default == "cosine"
    assert inspect.signature(sw.iter_vectors).parameters["batch"].default == 65536
    for function in (sw.Index, sw.Index.add, sw.Index.search, sw.exact_search, sw.read_vectors, sw.iter_vectors):
        doc = inspect.getdoc(function)
        for name in inspect.signature(function).parameters:
            assert name == "self" or name in doc, f"{function}: {name}"


def test_the_default_beam_is_the_one_in_help():
    doc = inspect.getdoc(sw.Index.search)
    tau = float(re.search(r"Default: ([\d.]+), or no such limit", doc)[1])
    beam = tuple(map(int, re.search(r"Default: \((\d+), (\d+)\)", doc).groups()))
    rows = clustered(20_000, 16)
    index = sw.Index(16, "l2")
    index.add(rows)
    index.balance()
    for options in ({"tau": tau}, {"tau": tau, "beam": beam}):
        told, used = index.search(rows[:300], 10, **options), index.search(rows[:300], 10)
        assert told == used and told.scanned == used.scanned and told.leaves == used.leaves
    assert index.search(rows[:300], 10, tau=tau + 0.2, beam=beam).scanned != used.scanned


def test_the_default_epsilon_is_the_one_in_help():
    epsilon = float(re.search(r"epsilon_0.*?Default: ([\d.]+)", inspect.getdoc(sw.Index.search), re.DOTALL)[1])
    rows = clustered(5000, 16)
    index = sw.Index(16, "l2")
    index.add(rows)
    told, used = index.search(rows[:300], 10, epsilon=epsilon), index.search(rows[:300], 10)
    assert told == used and told.reranked == used.reranked
    assert index.search(rows[:300], 10, epsilon=epsilon + 0.1).reranked > used.reranked


def test_the_metrics_and_the_sources_are_in_help():
    doc = sw.Index.__doc__
    for text in ("((q - x) ** 2).sum()", "1 - (q @ x) / (norm(q) * norm(x))", "-(q @ x)", "Smaller is nearer"):
        assert text in doc
    for source in ("RaBitQ", "SPANN", "SPFresh", "SOAR"):
        assert source in doc
    for name, error in SECTIONS.items():
        assert error in getattr(sw.Index, name).__doc__
