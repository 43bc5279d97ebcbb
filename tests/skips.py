"""A plugin, `-p tests.skips`: on ranks of an environment without extras, the tests are skipped that skips.txt lists.

A run fails that skips others, or not all of these, or more than MOST of all tests.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

LISTED = Path(__file__).with_suffix(".txt")
MOST = 0.2
_skipped: set[str] = set()
_run: set[str] = set()


def pytest_collectreport(report):
    if report.skipped:
        _skipped.add(report.nodeid)


def pytest_runtest_logreport(report):
    (_skipped if report.skipped else _run).add(re.sub(r"\[.*", "", report.nodeid))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    listed = {line.split(": ")[0] for line in LISTED.read_text().splitlines() if not line.startswith("#")}
    left_out = sum(_tests(name) for name in _skipped)
    share = left_out / max(left_out + len(_run - _skipped), 1)
    problems = [f"skipped, but not in {LISTED.name}: {name}" for name in sorted(_skipped - listed)]
    problems += [f"in {LISTED.name}, but not skipped: {name}" for name in sorted(listed - _skipped)]
    problems += [f"{share:.0%} of the tests are skipped"] if share > MOST else []
    if problems:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        session.config.get_terminal_writer().write("\n" + "\n".join(problems) + "\n")


def _tests(name):
    """The number of tests of a module, by its text; 1 for a test."""
    return 1 if "::" in name else len(re.findall(r"^ *def test_", Path(name).read_text(), re.MULTILINE))
