"""A context manager that calls finish at the end of a `with` block, or close if the block fails. Pure."""

from __future__ import annotations

from abc import abstractmethod
from types import TracebackType
from typing import TypeVar

_AnyFinishOnExit = TypeVar("_AnyFinishOnExit", bound="FinishOnExit")


class FinishOnExit:
    """The base of what ends with a common model, by finish(), or without one, by close(); agree() goes on with one."""

    @abstractmethod
    def agree(self) -> None:
        """Go on with a common model. Collective."""

    @abstractmethod
    def finish(self) -> None:
        """End with a common model. Collective."""

    @abstractmethod
    def close(self) -> None:
        """End without one. One-sided."""

    def __enter__(self: _AnyFinishOnExit) -> _AnyFinishOnExit:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.finish()
        else:
            self.close()
