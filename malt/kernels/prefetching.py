"""Generates prefetches, for the intrinsics of a file of kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from malt.kernels.compiler import cgutils, types


def prefetched(to_write: int) -> Callable[..., Any]:
    """Return a code generator that prefetches an element, given an array and its indices."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        """Its instructions."""
        kind = signature.args[0]
        array = context.make_array(kind)(context, builder, arguments[0])
        indices = [
            context.cast(builder, value, given, types.intp)
            for value, given in zip(arguments[1:], signature.args[1:], strict=True)
        ]
        address = cgutils.get_item_pointer(context, builder, kind, array, indices, wraparound=False)
        pointer, number = cgutils.voidptr_t, cgutils.int32_t
        shape = cgutils.ir.FunctionType(cgutils.ir.VoidType(), [pointer, number, number, number])
        called = cgutils.get_or_insert_function(builder.module, shape, "llvm.prefetch.p0i8")
        keep_close, data = 3, 1
        builder.call(called, [builder.bitcast(address, pointer), *map(number, (to_write, keep_close, data))])
        return context.get_dummy_value()

    return generate
