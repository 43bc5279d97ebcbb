"""The transport over MPI. Importing it loads the MPI library and initializes it."""

from dstorm.transports.mpi.library import before_finalize, check_usable, library, members
from dstorm.transports.mpi.transport import MpiTransport
from dstorm.transports.mpi.window import MpiWindow

__all__ = [
    "MpiTransport",
    "MpiWindow",
    "before_finalize",
    "check_usable",
    "library",
    "members",
]
