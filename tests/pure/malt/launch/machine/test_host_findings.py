"""What is said of a host on which a job cannot start."""

import pytest

from malt.launch.hosts.findings import Need, of_host, of_network, of_shell
from malt.launch.machine.mpi_library import Library

NEED = Need("/work", ("/work/x.py",), "/env/python", "3.11", "1.0", "digest", Library("openmpi", (5, 0)))
ALIKE = {"folder": True, "missing": [], "python": "3.11", "version": "1.0", "sources": "digest", "trouble": "",
         "mpi": "Open MPI v5.0.11, package"}  # fmt: skip


@pytest.mark.parametrize(("status", "errors", "what"), [
    (255, "ssh: Could not resolve hostname b: Name not known", "its name is not known here: "),
    (255, "ssh: connect to host b port 22: Connection refused", "ssh is refused: "),
    (255, "ssh: connect to host b port 22: No route to host", "it does not answer: "),
    (255, "No ED25519 host key is known\nHost key verification failed.", "its host key is not known "),
    (255, "REMOTE HOST IDENTIFICATION HAS CHANGED!\nHost key verification failed.", "its host key has changed"),
    (255, "u@b: Permission denied (publickey,password).", "ssh asks for a password, or refuses this user: ssh-copy"),
    (127, "bash: line 1: /env/python: No such file or directory", "there is no Python /env/python: "),
    (None, "", "it has not answered in time: "),
    (3, "motd\nodd words\n\n", "the connection ended with status 3: odd words"),
])  # fmt: skip
def test_what_a_remote_shell_prints(status, errors, what):
    assert of_shell("b", status, errors, "/env/python").startswith(f"host b: {what}")


@pytest.mark.parametrize(("found", "what"), [
    ({"folder": False}, "there is no folder /work: "),
    ({"missing": ["/work/x.py"]}, "there is no file /work/x.py: "),
    ({"python": "3.12"}, "/env/python is Python 3.12 there, and 3.11 here"),
    ({"version": ""}, "there is no malt where it is here: "),
    ({"version": "0.9", "sources": "other"}, "malt is 0.9 there, and 1.0 here: "),
    ({"sources": "other"}, "malt is 1.0 with other files there, and 1.0 here: "),
    ({"trouble": "mpi4py is not installed"}, "no MPI in /env/python: mpi4py is not installed; pip install"),
    ({"mpi": "MPICH Version: 5.0.2"}, "its MPI is MPICH 5.0, and Open MPI 5.0 here: "),
    ({"mpi": "Open MPI v4.1.6"}, "its MPI is Open MPI 4.1, and Open MPI 5.0 here: "),
])  # fmt: skip
def test_what_a_host_lacks(found, what):
    assert of_host("b", NEED, {**ALIKE, **found}).startswith(f"host b: {what}")
    assert of_host("b", NEED, ALIKE) == ""


def test_hosts_that_cannot_connect():
    assert of_network({"a": [], "b": []}) == ""
    assert of_network({"a": [], "b": ["c", "d"]}).startswith("host b cannot connect to c, d: ")
