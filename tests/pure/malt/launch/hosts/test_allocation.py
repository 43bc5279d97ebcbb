"""The hosts of hostfiles and batch systems, by what these have written in real jobs or document. No file is read."""

import pytest

from malt.launch.hosts.allocation import Allocation, Host, counts, expanded, found, of_hostfile
from malt.launch.machine.mpi_library import LaunchError


@pytest.mark.parametrize(("text", "names"), [
    ("gnode[10,20,25,37]", "gnode10 gnode20 gnode25 gnode37"),
    ("n[01-03,7],x", "n01 n02 n03 n7 x"),
    ("n[098-101]", "n098 n099 n100 n101"),
    ("r[1-2]n[3,5]-ib", "r1n3-ib r1n5-ib r2n3-ib r2n5-ib"),
    ("a,b-1.example.org", "a b-1.example.org"),
])  # fmt: skip
def test_node_lists_of_slurm(text, names):
    assert expanded(text) == names.split()


@pytest.mark.parametrize("text", ["n[1-3", "n1-3]", "n[a-b]", "n[[1]]"])
def test_node_lists_that_are_none(text):
    with pytest.raises(ValueError, match="brackets do not match|no range of numbers"):
        expanded(text)


def test_counts_of_slurm():
    assert counts("2(x3),1") == [2, 2, 2, 1] and counts("16") == [16]
    with pytest.raises(ValueError, match="no number of tasks: '2x3'"):
        counts("2x3")


SLURM = {"SLURM_JOB_ID": "17", "SLURM_JOB_NODELIST": "n[1-4]", "SLURM_TASKS_PER_NODE": "2(x3),1"}
LSF = {"LSB_JOBID": "9", "LSB_DJOB_HOSTFILE": "nodes"}
WORKERS, HOSTFILE = "pi-worker-0.pi.default.svc{0}2\npi-worker-1.pi.default.svc{0}2\n", "/etc/mpi/hostfile"
OF_MPIJOB = "pi-worker-0.pi.default.svc:2,pi-worker-1.pi.default.svc:2", "the hostfile /etc/mpi/hostfile"
GRANTED = {
    "slurm": (SLURM, "", ("n1:2,n2:2,n3:2,n4:1", "the Slurm allocation 17")),
    "slurm, a step of fewer nodes": (
        {**SLURM, "SLURM_TASKS_PER_NODE": "2(x2)"}, "", ("n1,n2,n3,n4", "the Slurm allocation 17")
    ),
    "slurm, another name": ({"SLURM_NODELIST": "n[1-2]"}, "", ("n1,n2", "the Slurm allocation")),
    "pbs": ({"PBS_JOBID": "5.server", "PBS_NODEFILE": "nodes"}, "n1\nn1\nn2\nn1\n",
            ("n1:3,n2:1", "the PBS allocation 5.server")),
    "lsf": ({**LSF, "LSB_MCPU_HOSTS": "hostA 4 hostB 2 "}, "unread", ("hostA:4,hostB:2", "the LSF allocation 9")),
    "lsf, by a file": (LSF, "hostA\nhostA\nhostB\n", ("hostA:2,hostB:1", "the LSF allocation 9")),
    "an MPIJob of Open MPI": ({"OMPI_MCA_orte_default_hostfile": HOSTFILE}, WORKERS.format(" slots="), OF_MPIJOB),
    "an MPIJob of MPICH": ({"HYDRA_HOST_FILE": HOSTFILE}, WORKERS.format(":"), OF_MPIJOB),
    "no batch system": ({"SLURM_JOB_NODELIST": "", "HOME": "/"}, "", None),
}  # fmt: skip


@pytest.mark.parametrize("system", GRANTED)
def test_hosts_that_a_batch_system_has_granted(system):
    environ, text, expected = GRANTED[system]
    made = found(environ, {"nodes": text, HOSTFILE: text}.__getitem__)
    assert (None if made is None else (",".join(map(str, made.hosts)), made.source)) == expected


@pytest.mark.parametrize(("environ", "why"), [
    ({"SLURM_JOB_NODELIST": "n[1"}, r"that slurm has granted cannot be read \(brackets .*--hosts$"),
    ({"LSB_MCPU_HOSTS": "a 2 b"}, r"that lsf has granted .*no pairs of host and slots: 'a 2 b'"),
    ({"PBS_NODEFILE": "/no/such/file"}, r"that pbs has granted cannot be read \(\[Errno 2\]"),
])  # fmt: skip
def test_variables_that_cannot_be_read_are_named(environ, why):
    with pytest.raises(LaunchError, match=why):
        found(environ)


def test_fewer_slots_than_ranks():
    """Slurm grants a task a node where none are asked for; what the user has counted holds."""
    two = Host("a", 1), Host("b", 1)
    assert Allocation(two, "").shared_by(2) == two
    assert Allocation(two, "").shared_by(3) == (Host("a"), Host("b"))
    assert Allocation(two, "", is_binding=True).shared_by(3) == two


def test_hostfiles():
    text = """
    # of Open MPI
    a slots=2 max_slots=4   # a comment
    b.example.org slots=1
    of-mpich:3 binding=user:0
    plain
    again
    again
    """
    assert ",".join(map(str, of_hostfile(text))) == "a:2,b.example.org:1,of-mpich:3,plain,again:2"
    for wrong in ("a:x", "a slots=0", "-o"):
        with pytest.raises(ValueError, match="^line 2: "):
            of_hostfile(f"ok\n{wrong}")
