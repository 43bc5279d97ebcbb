"""The transport over MPI. Importing it loads the MPI library and initializes it."""

from dstorm.transports.mpi.library import before_finalize, check_usable, library, look_up, members, publish
from dstorm.transports.mpi.transport import MpiTransport
from dstorm.transports.mpi.window import MpiWindow, fence

__all__ = [
    "MpiTransport",
    "MpiWindow",
    "before_finalize",
    "check_usable",
    "fence",
    "library",
    "look_up",
    "members",
    "publish",
]
