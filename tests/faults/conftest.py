"""Jobs of the tests of failures."""

from __future__ import annotations

import pytest
from failing_jobs import Job


@pytest.fixture
def start(job_environment, tmp_path):
    """start(source, *arguments, ...): a job of that program."""

    def job(source, *arguments, **options):
        program = tmp_path / "program.py"
        program.write_text(source)
        return Job([str(program), *arguments], job_environment, tmp_path, **options)

    return job
