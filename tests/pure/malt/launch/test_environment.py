"""What a job started by a rank does not inherit."""

from __future__ import annotations

import pytest

from malt.launch.environment import outside

pytestmark = pytest.mark.serial

USERS = {"PATH": "/bin", "OMPI_MCA_btl": "self,tcp", "PMIX_MCA_gds": "hash", "HYDRA_IFACE": "eth0", "UCX_TLS": "tcp",
         "MPIR_CVAR_NOLOCAL": "1", "OMP_NUM_THREADS": "2"}  # fmt: skip
OF_THE_JOB = {
    "open mpi": {"PMIX_RANK": "1", "PMIX_NAMESPACE": "x", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_MCA_num_procs": "2"},
    "mpich": {"PMI_RANK": "1", "PMI_FD": "9", "HYDI_CONTROL_FD": "7", "MPI_LOCALNRANKS": "2"},
    "malt": {
        "MALT_RANK_PROCESS": "1 2 3",
        "MALT_JOB_DIR": "/tmp/x",
        "MALT_CALL": "5",
        "MALT_SURVIVE": "1",
        "MALT_COUNTS": "/tmp/x/counts.jsonl",
    },
}


@pytest.mark.parametrize("whose", OF_THE_JOB)
def test_variables_of_a_rank_are_not_inherited(whose):
    assert outside(USERS | OF_THE_JOB[whose]) == USERS


def test_a_rank_that_has_not_imported_malt_is_one_of_its_job_too():
    """A trace of its job would otherwise be overwritten by that of a job that it starts."""
    ours = {"PMIX_RANK": "0", "MALT_WITHIN": "/tmp/x", "MALT_TRACE": "/x", "MALT_METRICS": "/x.jsonl"}
    assert outside(USERS | ours) == USERS


def test_outside_a_rank_all_is_inherited():
    environ = USERS | {"MALT_SURVIVE": "1", "OMPI_MCA_num_procs": "2"}
    assert outside(environ) == environ


def test_what_a_user_has_set_stays_in_a_step_of_a_batch_system():
    """srun gives it a rank of its own, and it is none of a job of malt."""
    asked = {"MALT_SURVIVE": "1", "MALT_METRICS": "a.jsonl"}
    assert outside(USERS | asked | {"PMIX_RANK": "0"}) == USERS | asked
    assert outside(USERS | asked | {"PMIX_RANK": "0", "MALT_RANK": "0"}) == USERS
