"""The README's program runs and prints what it says, and the two commands are the ones people are told."""

import io
import re
from contextlib import redirect_stdout
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[2] / "README.md"
TEXT = README.read_text(encoding="utf-8")
PROGRAMS = re.findall(r"^```python\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)


def test_there_is_a_short_program() -> None:
    assert PROGRAMS and len(PROGRAMS[0].strip().splitlines()) <= 18


@pytest.mark.parametrize("program", PROGRAMS)
def test_each_program_prints_what_it_says(program: str) -> None:
    """A line ``print(...)  # text`` promises that text."""
    said = re.findall(r"^ *print\(.*\)\s+# (.*)$", program, re.MULTILINE)
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(program, str(README), "exec"), {"__name__": "readme"})
    assert printed.getvalue().splitlines() == [line.strip() for line in said]


def test_the_two_commands_are_there() -> None:
    assert re.findall(r"^(pip install .*)$", TEXT, re.MULTILINE) == [
        "pip install . && python -m sapwood demo",
        "pip install '.[test]' && pytest && cargo test --release",
    ]


def test_links_lead_to_files() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", TEXT):
        assert (README.parent / target).exists(), target
