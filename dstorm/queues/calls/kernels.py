"""The compiled scatter and gather of dense vectors inside a host. Only compiled.py imports this module.

Headers, slots and the order of stores are those of sender.py and receiver.py. A kernel does all of a message, or
nothing: where anything is not as in the common case it changes nothing, and the code in Python does the call. So it
counts nothing, and waits for some microseconds at most.

A kernel gets the address of a table of 64-bit words: what is the same in each call, and the state of each edge. The
numbers below are places in it. Words of mapped memory are loaded and stored one by one, by atomic instructions, each
once; fences stand where the code in Python calls `Window.sync`. So neither the compiler nor the processor moves the
stores of a stage before those of an earlier one, or a load of a payload before the header that says that it is whole
(the fences of C11, 7.17.4, acquire and release; on x86-64 they bind the compiler alone). A payload has fences around it
that order stores past the caches, too. Its copy may make such stores, as may memcpy from a few hundred KB on, and they
overtake a mark that was stored before them.

numba's cache looks at the time of one file: all that is compiled is in this one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from dstorm import header

ARRAY, NBYTES, DEPTH, EDGES = range(4)
"""Of both tables: the address of the array, its length, the slots of an edge, the number of edges."""
IN_FLIGHT, OUT_EDGES = 4, 5
"""Of a table to send: the most unacknowledged messages (0: receivers acknowledge none); where the edges begin."""
LOCKSTEP, ITEM_NBYTES, PLACE, BLOCK, BLOCK_SIZE, BEFORE, CHECKED, IN_EDGES = range(4, 12)
"""Of a table to gather: whether messages of one step are merged; the length of an element; the place of the array in
the sum; an array for sums of blocks, its length; an array for the values from before the merge, unless in lockstep;
whether the result must be finite, but in lockstep; where the edges begin."""
ACKNOWLEDGEMENT, SETTLED, NUMBER, STEP, SLOTS = range(5)
"""Of an edge: the address of the acknowledgement; the newest message sent, or taken; the number and the step of the
message merged (number 0: none); the addresses of its slots."""

UNUSUAL, DONE, OVERWRITTEN = range(3)
"""What a gather returns: something is not as in the common case; messages were merged, or there were none; OVERWRITTEN
+ k: the message of edge k was overwritten meanwhile. -1 - k: the peer of edge k is behind."""

_UNUSUAL = 2

_LOOKS = 420
"""Looks for a message in lockstep before the wait for it begins, whose first poll takes as long as all of them."""

_U = np.uint64
_0, _1, _FOUR, _WORD = _U(0), _U(1), _U(4), _U(8)
_HEADER = _U(header.NBYTES)
_WRITING, _WHOLE = _U(header.WRITING), _U(header.WHOLE)
_FIRST_NOT_FINITE = _U(0x7FF << 52)
_ONE = _U(0x3FF << 52)
"""1.0, the weight of a header that has none."""


_inlined = njit(error_model="numpy")
_kernel = njit(error_model="numpy", cache=True)


@intrinsic
def _load(_context: Any, address: Any, place: Any) -> Any:
    """Word number `place` of those from `address` on."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        """Its instructions."""
        return builder.load_atomic(_word(builder, arguments), "monotonic", 8)

    return types.uint64(types.uint64, types.int64), generate


@intrinsic
def _store(_context: Any, address: Any, place: Any, word: Any) -> Any:
    """Store `word` there."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        """Its instructions."""
        builder.store_atomic(arguments[2], _word(builder, arguments), "monotonic", 8)
        return context.get_dummy_value()

    return types.void(types.uint64, types.int64, types.uint64), generate


def _word(builder: Any, arguments: Any) -> Any:
    """A pointer to word number arguments[1] of those from the address arguments[0] on."""
    return builder.gep(builder.inttoptr(arguments[0], cgutils.ir.IntType(64).as_pointer()), [arguments[1]])


@intrinsic
def _fence(_context: Any) -> Any:
    """Order the loads before it with all that comes after it, and all that comes before it with the stores after it."""

    def generate(context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        """Its instructions."""
        builder.fence("acq_rel")
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def _store_fence(_context: Any) -> Any:
    """Fence like `_fence`, also for stores past the caches."""

    def generate(context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        """Its instructions."""
        builder.fence("acq_rel")
        if builder.module.triple.startswith("x86_64"):
            kind = cgutils.ir.FunctionType(cgutils.ir.VoidType(), ())
            builder.call(builder.module.declare_intrinsic("llvm.x86.sse.sfence", (), kind), ())
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def _copy(_context: Any, target: Any, source: Any, nbytes: Any) -> Any:
    """Copy `nbytes` from the address `source` to `target`."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        """Its instructions."""
        places = [builder.inttoptr(one, cgutils.ir.IntType(8).as_pointer()) for one in arguments[:2]]
        cgutils.raw_memcpy(builder, *places, arguments[2], 1)
        return context.get_dummy_value()

    return types.void(types.uint64, types.uint64, types.uint64), generate


_VECTOR = _U(32)
"""Bytes of a store past the caches."""
_LONG = _U(1 << 21)
"""Bytes of an array from which on its values from before a merge are written past the caches: they would displace what
is read next."""
_LONG_MESSAGE = _U(1 << 16)
"""Bytes from which on a message is written past the caches. A store into the caches waits for each line, which the core
of the receiver has: where they share no cache 190 KB take 80 us so, and 7 past the caches. The receiver reads 7 to 10
us longer."""


@intrinsic
def _stream(_context: Any, target: Any, source: Any, vectors: Any) -> Any:
    """Copy as many vectors by stores past the caches. `target`: a multiple of their length."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        """Its instructions."""
        ir = cgutils.ir
        vector = ir.VectorType(ir.IntType(64), 4).as_pointer()
        to, start = (builder.inttoptr(one, vector) for one in arguments[:2])
        mark = builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)])
        with cgutils.for_range(builder, arguments[2]) as loop:
            values = builder.load(builder.gep(start, [loop.index]), align=1)
            builder.store(values, builder.gep(to, [loop.index]), align=32).set_metadata("nontemporal", mark)
        return context.get_dummy_value()

    return types.void(types.uint64, types.uint64, types.uint64), generate


@_inlined
def _copy_past_caches(target: Any, source: Any, nbytes: Any) -> None:
    """Copy like `_copy`, by stores that only `_store_fence` orders, with those before them and after them."""
    vectors = nbytes // _VECTOR if target % _VECTOR == _0 else _0
    _stream(target, source, vectors)
    done = vectors * _VECTOR
    _copy(target + done, source + done, nbytes - done)


@intrinsic
def _pointer(_context: Any, address: Any, like: Any) -> Any:
    """A pointer to elements of the type of `like`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        """Its instructions."""
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(like)(address, like), generate


# The check of a header: Python's hash of a tuple of numbers (xxHash of the hashes of its elements)

_MODULUS, _MODULUS_BITS = _U(2**61 - 1), _U(61)
_MANTISSA_BITS, _LEADING_BIT, _MANTISSA = _U(52), _U(2**52), _U(2**52 - 1)
_EXPONENT_OFFSET = _U(23)
"""-1075 modulo 61: the last bit of a mantissa stands for 2^(exponent - 1075)."""
_PRIME_1, _PRIME_2, _PRIME_5 = _U(11400714785074694791), _U(14029467366897019727), _U(2870177450012600261)
_LEFT, _RIGHT, _END = _U(31), _U(33), _U(7 ^ 2870177450012600261 ^ 3527539)
_ERROR, _NO_ERROR = _U(2**64 - 1), _U(1546275796)
"""-1, which is no hash in Python, and what stands for it."""


@_inlined
def _hash_of_float(bits: Any) -> Any:
    """Python's hash of a float that is finite and not negative: m 2^e modulo 2^61 - 1, hence m rotated by e mod 61."""
    exponent, mantissa = bits >> _MANTISSA_BITS, bits & _MANTISSA
    if exponent == _0:
        exponent = _1
    else:
        mantissa |= _LEADING_BIT
    turn = (exponent + _EXPONENT_OFFSET) % _MODULUS_BITS
    return ((mantissa << turn) & _MODULUS) | (mantissa >> (_MODULUS_BITS - turn))


@_inlined
def _mixed(total: Any, word: Any) -> Any:
    total += word * _PRIME_2
    return ((total << _LEFT) | (total >> _RIGHT)) * _PRIME_1


@_inlined
def check(number: Any, step: Any, state: Any, encoding: Any, nbytes: Any, weight: Any, share: Any) -> Any:
    """The check of a header of these fields. `weight`, `share`: the bits of floats that are finite and not negative."""
    total = _mixed(_mixed(_mixed(_PRIME_5, number), step), state)
    total = _mixed(_mixed(total, encoding), nbytes)
    total = _mixed(_mixed(total, _hash_of_float(weight)), _hash_of_float(share)) + _END
    return _NO_ERROR if total == _ERROR else total


# Headers


@_inlined
def _write(at: Any, number: Any, step: Any, state: Any, nbytes: Any, weight: Any, share: Any) -> None:
    _store(at, 0, number)
    _store(at, 1, step)
    _store(at, 2, state)
    _store(at, 3, _0)
    _store(at, 4, nbytes)
    _store(at, 5, weight)
    _store(at, 6, share)
    _store(at, 7, check(number, step, state, _0, nbytes, weight, share))


@_inlined
def _read(at: Any) -> Any:
    """(whether it is whole, or was never written; number, step, state, encoding, nbytes) of a header."""
    number, step, state, encoding = _load(at, 0), _load(at, 1), _load(at, 2), _load(at, 3)
    nbytes, weight, share, found = _load(at, 4), _load(at, 5), _load(at, 6), _load(at, 7)
    if found == _0:
        is_sound = (number | step | state | encoding | nbytes | weight | share) == _0
    else:
        is_sound = weight < _FIRST_NOT_FINITE and share < _FIRST_NOT_FINITE
        is_sound = is_sound and found == check(number, step, state, encoding, nbytes, weight, share)
    return is_sound, number, step, state, encoding, nbytes


@_inlined
def _slot(edge: Any, number: Any, depth: Any) -> Any:
    """The address of the slot of message `number`."""
    return _load(edge, SLOTS + np.int64((number - _1) % depth))


# A scatter


@_kernel
def scatter(table: Any, step: Any, weight: float, share: float) -> bool:
    """Send the array to all peers; return whether it was sent. One-sided."""
    depth, in_flight = _load(table, DEPTH), _load(table, IN_FLIGHT)
    weight_bits, share_bits = np.float64(weight).view(np.uint64), np.float64(share).view(np.uint64)
    if weight_bits >= _FIRST_NOT_FINITE or share_bits >= _FIRST_NOT_FINITE:
        return False
    _fence()
    for k in range(_load(table, EDGES)):
        edge = _edge(table, OUT_EDGES, k)
        is_sound, taken, _, state, _, _ = _read(_load(edge, ACKNOWLEDGEMENT))
        if not is_sound or (state != _0 and state != _WHOLE):  # the peer has closed
            return False
        if in_flight != _0 and _load(edge, SETTLED) >= taken + in_flight:
            return False
    _fence()
    if in_flight == _0:
        _mark(table, step, _WRITING, _0, _ONE, _0)
    _store_fence()
    for k in range(_load(table, EDGES)):
        edge = _edge(table, OUT_EDGES, k)
        payload = _slot(edge, _load(edge, SETTLED) + _1, depth) + _HEADER
        if _load(table, NBYTES) < _LONG_MESSAGE:
            _copy(payload, _load(table, ARRAY), _load(table, NBYTES))
        else:
            _copy_past_caches(payload, _load(table, ARRAY), _load(table, NBYTES))
    _store_fence()
    _mark(table, step, _WHOLE, _load(table, NBYTES), weight_bits, share_bits)
    _fence()
    return True


@_inlined
def _edge(table: Any, first: int, k: Any) -> Any:
    """The address of edge `k` in a table."""
    return table + _WORD * (np.uint64(first) + k * (np.uint64(SLOTS) + _load(table, DEPTH)))


@_inlined
def _mark(table: Any, step: Any, state: Any, nbytes: Any, weight: Any, share: Any) -> None:
    """Write the header of the next message of each edge."""
    for k in range(_load(table, EDGES)):
        edge = _edge(table, OUT_EDGES, k)
        number = _load(edge, SETTLED) + _1
        _write(_slot(edge, number, _load(table, DEPTH)), number, step, state, nbytes, weight, share)


# A gather


@_kernel
def gather_f4(table: Any, step: Any, ahead: Any, is_mean: bool) -> int:
    """`_gather` of float32."""
    return _gather(table, step, ahead, is_mean, np.float32)


@_kernel
def gather_f8(table: Any, step: Any, ahead: Any, is_mean: bool) -> int:
    """`_gather` of float64."""
    return _gather(table, step, ahead, is_mean, np.float64)


@_inlined
def _gather(table: Any, step: Any, ahead: Any, is_mean: bool, kind: Any) -> int:
    """Merge the messages of all peers into the array: the mean or the sum with it. Returns as above. One-sided.

    In lockstep it needs a message of `step` from each peer, and acknowledges it. Else it takes the newest of each peer,
    if there is one, and needs to know that no peer is more than `ahead` steps behind.
    """
    lockstep, count = _load(table, LOCKSTEP) != _0, 0
    _fence()
    for k in range(_load(table, EDGES)):
        edge, looks = _edge(table, IN_EDGES, k), 0
        found = _find_of_step(table, edge, step) if lockstep else _find_newest(table, edge, step, ahead)
        while lockstep and found < 0 and looks < _LOOKS:
            looks += 1
            found = _find_of_step(table, edge, step)
        if found < 0:
            return -1 - np.int64(k)
        if found == _UNUSUAL:
            return UNUSUAL
        count += found
    if count == 0:
        return DONE
    _fence()
    is_finite = _blend(table, lockstep, count, kind(count + 1 if is_mean else 1))
    _fence()
    done = DONE if is_finite else UNUSUAL
    for k in range(_load(table, EDGES)):
        edge = _edge(table, IN_EDGES, k)
        number = _load(edge, NUMBER)
        if lockstep:
            _write(_load(edge, ACKNOWLEDGEMENT), number, step, _WHOLE, _0, _ONE, _0)
        elif number != _0:
            is_sound, again, _, state, _, _ = _read(_slot(edge, number, _load(table, DEPTH)))
            if not is_sound or again != number or state != _WHOLE:
                done = OVERWRITTEN + np.int64(k)
    if lockstep:
        _fence()
    elif done != DONE:
        _copy(_load(table, ARRAY), _load(table, BEFORE), _load(table, NBYTES))
    return done


@_inlined
def _find_of_step(table: Any, edge: Any, step: Any) -> int:
    """Note the next message, if it is that of `step`, and whole: 1; it has not come: -1; else _UNUSUAL."""
    number = _load(edge, SETTLED) + _1
    is_sound, found, its_step, state, encoding, nbytes = _read(_slot(edge, number, _load(table, DEPTH)))
    if not is_sound or found < number:
        return -1
    if found != number or its_step != step or state != _WHOLE or encoding != _0 or nbytes != _load(table, NBYTES):
        return _UNUSUAL
    _store(edge, NUMBER, number)
    _store(edge, STEP, step)
    return 1


@_inlined
def _find_newest(table: Any, edge: Any, step: Any, ahead: Any) -> int:
    """Note the newest whole message that is not settled: 1; there is none: 0; the peer is behind: -1; else _UNUSUAL."""
    settled = _load(edge, SETTLED)
    newest, newest_step, reached, is_plain = settled, _0, _0, True
    for slot in range(SLOTS, SLOTS + np.int64(_load(table, DEPTH))):
        is_sound, number, its_step, state, encoding, nbytes = _read(_load(edge, slot))
        if not is_sound:
            return _UNUSUAL
        if state == _WHOLE:
            reached = max(reached, its_step)
            if number > newest:
                newest, newest_step = number, its_step
                is_plain = encoding == _0 and nbytes == _load(table, NBYTES)
    if not is_plain:
        return _UNUSUAL
    if reached + ahead < step:
        return -1
    is_new = newest > settled
    _store(edge, NUMBER, newest if is_new else _0)
    _store(edge, STEP, newest_step)
    return 1 if is_new else 0


@_inlined
def _blend(table: Any, lockstep: bool, count: int, divisor: Any) -> bool:
    """Replace the array by the sum of the terms in rank order, over `divisor`, an element.

    It works block by block. Unless in lockstep it keeps the values of a block before it changes them. It returns
    whether the result is finite, where that is to be checked: then all messages are.
    """
    is_finite = True
    nbytes, block_nbytes = _load(table, NBYTES), _load(table, BLOCK_SIZE) * _load(table, ITEM_NBYTES)
    other, before = _0, _0  # the payload, where there is one; the same where it comes before the array
    for k in range(_load(table, EDGES)):
        other |= _payload(table, k)
        if k < _load(table, PLACE):
            before |= _payload(table, k)
    for start in range(_0, nbytes, block_nbytes):
        some, own = min(block_nbytes, nbytes - start), _load(table, ARRAY) + start
        if not lockstep:
            if nbytes < _LONG:
                _copy(_load(table, BEFORE) + start, own, some)
            else:
                _copy_past_caches(_load(table, BEFORE) + start, own, some)
        if count == 1:
            _add_one(own, other + start, before == _0, some // _load(table, ITEM_NBYTES), divisor)
        else:
            _add_all(table, start, some // _load(table, ITEM_NBYTES), divisor)
        if _load(table, CHECKED) != _0:
            is_finite &= _is_finite(_pointer(own, divisor), some // _load(table, ITEM_NBYTES))
    return is_finite


@_inlined
def _is_finite(values: Any, size: Any) -> bool:
    is_finite = True
    for j in range(size):
        is_finite &= values[j] - values[j] == 0
    return is_finite


@_inlined
def _sum(first: Any, second: Any) -> Any:
    """The sum of two numbers. Of two NaNs it is the first, on all ranks: the compiler lets the processor add either."""
    return first if first != first else first + second


@_inlined
def _add_one(own: Any, other: Any, is_first: bool, size: Any, divisor: Any) -> None:
    """Blend two terms into `own`: 1 / divisor is exact. `is_first`: whether it is the first of them."""
    # By one pointer: of two that are equal the compiler must expect any overlap, so no SIMD.
    result, values = _pointer(own, divisor), _pointer(other, divisor)
    factor = divisor / divisor / divisor
    if is_first:
        for j in range(size):
            result[j] = _sum(result[j], values[j]) * factor
    else:
        for j in range(size):
            result[j] = _sum(values[j], result[j]) * factor


@_inlined
def _add_all(table: Any, start: Any, size: Any, divisor: Any) -> None:
    """Blend a block of all terms, from byte `start` on, into the array."""
    total, zero = _pointer(_load(table, BLOCK), divisor), divisor - divisor
    for j in range(size):
        total[j] = -0.0  # plus x it is x, also where x is -0.0
    for k in range(_load(table, EDGES) + _1):
        place = _load(table, PLACE)
        term = _load(table, ARRAY) if k == place else _payload(table, k if k < place else k - _1)
        if term != _0:
            values = _pointer(term + start, divisor)
            for j in range(size):
                total[j] += values[j] if total[j] == total[j] else zero  # as _sum, but always a store, hence SIMD
    result = _pointer(_load(table, ARRAY) + start, divisor)
    for j in range(size):
        result[j] = total[j] / divisor


@_inlined
def _payload(table: Any, k: Any) -> Any:
    """The address of the payload of the message of edge `k`; 0 where there is none."""
    edge = _edge(table, IN_EDGES, k)
    number = _load(edge, NUMBER)
    return _slot(edge, number, _load(table, DEPTH)) + _HEADER if number != _0 else _0


def compile_for(kind: str) -> tuple[Any, Any]:
    """`scatter`, and the gather of arrays of dtype `kind`, compiled, or loaded from numba's cache."""
    word, gather = types.uint64, {"f": gather_f4, "d": gather_f8}[kind]
    floats = types.float64, types.float64
    return _entry(scatter, word, word, *floats), _entry(gather, word, word, word, types.boolean)


def _entry(kernel: Any, *signature: Any) -> Any:
    """The compiled code, without numba's choice among signatures, which takes three times as long as a short call."""
    kernel.compile(signature)
    return kernel.overloads[signature].entry_point


def writes_headers(compiled_scatter: Any) -> bool:
    """Return whether the kernels write headers as this Python does, whose hashes may be others."""
    memory, wanted = np.zeros((4, header.NBYTES), np.uint8), np.zeros(header.NBYTES, np.uint8)
    array, acknowledgement, slot, _ = (memory.ctypes.data + row * header.NBYTES for row in range(4))
    table = np.array([array, header.NBYTES, 1, 1, 0, acknowledgement, 10**12, 0, 0, slot], np.uint64)
    header.write(wanted.data, 0, 10**12 + 1, 7, header.WHOLE, 0, header.NBYTES, 1 / 3, 1e-310)
    return compiled_scatter(table.ctypes.data, 7, 1 / 3, 1e-310) and memory[2].tobytes() == wanted.tobytes()
