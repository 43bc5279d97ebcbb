"""The environment of an mpiexec."""

from malt.launch.command import Job, Line
from malt.launch.environment import travelling
from malt.launch.job import _variables


def test_the_last_variable_is_one_that_no_other_host_needs():
    for environ, is_spread in (({"OWN": "x"}, False), ({"_": "y", "OWN": "x"}, False), ({"OWN": "x"}, True)):
        line = Line({"MALT_RESTART": "1"}, [], Job(2, ()), is_spread=is_spread)  # spread: by a batch system without ssh
        names = list(_variables(line, environ, "/tmp/malt-x", not is_spread, None))
        assert {"OWN", "MALT_RESTART", "MALT_FAILURE_DIR"} < set(names)
        assert names[-1] not in travelling(dict.fromkeys(names, ""))  # MPICH's mpiexec leaves it out
