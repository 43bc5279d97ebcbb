"""What a job started by a rank does not inherit."""

import pytest

from malt.launch.environment import outside

USERS = {"PATH": "/bin", "OMPI_MCA_btl": "self,tcp", "PMIX_MCA_gds": "hash", "HYDRA_IFACE": "eth0", "UCX_TLS": "tcp",
         "MPIR_CVAR_NOLOCAL": "1", "OMP_NUM_THREADS": "2"}  # fmt: skip
OF_A_JOB = [
    {"PMIX_RANK": "1", "PMIX_NAMESPACE": "x", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_MCA_num_procs": "2"},
    {"PMI_RANK": "1", "PMI_FD": "9", "HYDI_CONTROL_FD": "7", "MPI_LOCALNRANKS": "2"},
    {"MALT_RANK_PROCESS": "1 2 3", "MALT_JOB_DIR": "/tmp/x", "MALT_CALL": "5", "MALT_SURVIVE": "1",
     "MALT_COUNTS": "/tmp/x/counts.jsonl"},
    # a rank that has not imported malt: the trace of its job would be overwritten by that of a job that it starts
    {"PMIX_RANK": "0", "MALT_WITHIN": "/tmp/x", "MALT_TRACE": "/x", "MALT_METRICS": "/x.jsonl"},
    {"MALT_SURVIVE": "1", "MALT_METRICS": "a.jsonl", "PMIX_RANK": "0", "MALT_RANK": "0"},
]  # fmt: skip


@pytest.mark.parametrize("variables", OF_A_JOB, ids=["Open MPI", "MPICH", "malt", "not yet malt", "plain"])
def test_variables_of_a_rank_are_not_inherited(variables):
    assert outside(USERS | variables) == USERS


def test_what_a_user_has_set_stays_outside_a_rank_and_in_a_step_of_a_batch_system():
    """srun gives it a rank of its own, and it is none of a job of malt."""
    environ = USERS | {"MALT_SURVIVE": "1", "OMPI_MCA_num_procs": "2"}
    assert outside(environ) == environ
    asked = USERS | {"MALT_SURVIVE": "1", "MALT_METRICS": "a.jsonl"}
    assert outside(asked | {"PMIX_RANK": "0"}) == asked
