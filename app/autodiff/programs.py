"""The derivatives of an op as programs for ``app.runtime.modes``, which runs them in any mode."""

import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple, TypeAlias, cast
from weakref import WeakValueDictionary

import tensorflow as tf

from app.autodiff.builder import Builder, Level
from app.autodiff.derived import origin
from app.autodiff.transforms import Signature, Transform, signature
from app.runtime.calculus import Calculus
from app.runtime.modes import Around, Key, Results, Trace, Traceable, Traits
from app.runtime.owned_cache import OwnedCache
from app.runtime.trace_entry import Reference
from ops import Array, Op, OpFault, Tensor, located, many, shown_kind


class ShapeOf(NamedTuple):
    """The leaf, or the output of the registered op, that has the same shape."""

    name: str
    is_leaf: bool


class Expected(NamedTuple):
    """The expected shape of a result, and the author's function that returns it, with its order."""

    shape: ShapeOf
    function: str
    order: int


@dataclass(frozen=True, eq=False)
class Program:
    """Transforms of one op, for one dtype and one choice of static attributes.

    Its leaves are the inputs, the number attributes and the seeds of each transform. Its results are those of the last
    transform and of the levels ``kept``, of which 0 has the op's outputs. If ``batched``, the seeds of the last
    transform and their results have a leading axis. Programs that differ only in ``retrace`` are traced separately.
    Make it with ``program_of``: a program is equal only to itself, so that it is found fast as a key.
    """

    op: Op
    dtype: str
    static: tuple[tuple[str, Any], ...]
    transforms: tuple[Transform, ...] = ()
    kept: tuple[int, ...] = ()
    batched: bool = False
    retrace: int = 0

    @property
    def reference(self) -> Reference:
        """The weak reference by which traces know the program."""
        return self._reference

    @cached_property
    def _reference(self) -> Reference:
        return Reference(weakref.ref(self), weakref.ref(self.op))

    @property
    def traits(self) -> Traits:
        """What the modes need to know: the op's, and the orders and shapes that follow from the transforms."""
        base, own = origin(self.op)[0], self.signatures[1]
        slots = {ShapeOf(slot.name, is_leaf=True): slot.shape for slot in base.inputs}
        slots |= {ShapeOf(slot.name, is_leaf=False): slot.shape for slot in base.outputs}
        many = own.seeds[-1].values() if self.batched else ()
        shapes = dict.fromkeys(self.op.attrs.number_names(), ()) | {
            leaf: _known_sizes(slots[of], batched=leaf in many) for leaf, of in own.leaves.items()
        }
        batching = self.op.batching_for(self.op.attrs.model_construct(**dict(self.static)))
        has_few_shapes = batching == "elementwise" and not self.batched
        sizes = tuple(shapes[name] for name in self.leaf_names)
        return Traits(base.name, self.orders, sizes, has_few_shapes, bool(base.parts))

    @property
    def orders(self) -> int:
        """The number of nested pullbacks."""
        return sum(transform.orders for transform in (*origin(self.op)[1], *self.transforms))

    @cached_property
    def signatures(self) -> tuple[Signature[ShapeOf], Signature[ShapeOf]]:
        """The signature of the transforms that derive the op from the registered one, and that of the program's own."""
        base, derivation = origin(self.op)
        inputs = {slot.name: ShapeOf(slot.name, is_leaf=True) for slot in base.inputs}
        outputs = {slot.name: ShapeOf(slot.name, is_leaf=False) for slot in base.outputs}
        before = signature(derivation, inputs, outputs, base.taken_names)
        named = {before.names[-1][name]: shape for name, shape in before.levels[-1].items()}
        return before, signature(self.transforms, before.leaves, named, base.taken_names)

    @cached_property
    def expected(self) -> Mapping[Key, Expected]:
        """The expectation of each result, and of each shape that the program returns for checks."""
        (base, derivation), (before, own) = origin(self.op), self.signatures
        transforms, levels = (*derivation, *self.transforms), (*before.levels[:-1], *own.levels)
        inputs, expected = {slot.name for slot in base.inputs}, dict[Key, Expected]()
        totals = accumulate((transform.orders for transform in transforms), initial=0)
        for number, (level, orders) in enumerate(zip(levels, totals, strict=True)):
            for name, shape in level.items():
                is_rule = orders == 1 or name in inputs
                function = "the gradient function" if is_rule else "the gradient of the gradient function"
                result = Expected(shape, function if number else "forward", min(orders, 2))
                expected[f"{number} shape", name] = result
                if number >= len(derivation):
                    expected[number - len(derivation), name] = result
            for transform in transforms[number : number + 1]:
                for name in transform.wrt if transform.rule == "jvp" else ():
                    inner = Expected(ShapeOf(name, is_leaf=True), "the gradient function", 1 + (orders > 0))
                    expected[f"{number} inner shape", name] = inner
        return expected

    @cached_property
    def leaf_names(self) -> tuple[str, ...]:
        """The names of the leaves in order; the number attributes have theirs."""
        seeds = (leaf for each in self.signatures[1].seeds for leaf in each.values())
        return (*(slot.name for slot in self.op.inputs), *self.op.attrs.number_names(), *seeds)

    @cached_property
    def leaf_dtypes(self) -> tuple[str, ...]:
        """The dtypes of the leaves in order."""
        base, leaves = origin(self.op)[0], self.signatures[1].leaves
        of = {ShapeOf(slot.name, is_leaf=True): slot for slot in base.inputs}
        of |= {ShapeOf(slot.name, is_leaf=False): slot for slot in base.outputs}
        slots = {leaf: of[shape] for leaf, shape in leaves.items()}
        return tuple(base.dtype_of(slots[x], self.dtype) if x in slots else self.dtype for x in self.leaf_names)

    @property
    def op_name(self) -> bytes:
        """The name of the registered op, or graph."""
        return self._op_name

    @cached_property
    def _op_name(self) -> bytes:
        return origin(self.op)[0].name.encode()

    def describe(self, leaves: Sequence[Array]) -> str:
        """Return the names, dtypes and shapes of these leaves as text, such as ``x float64[3, 2], dy float64[3]``."""
        named = zip(self.leaf_names, leaves, strict=True)
        return ", ".join(f"{name} {leaf.dtype}{list(leaf.shape)}" for name, leaf in named)

    @cached_property
    def row_leaves(self) -> tuple[bool, ...]:
        """Whether each leaf has rows, where those of the op are independent: numbers and shared inputs have none."""
        shared, leaves = origin(self.op)[0].shared, self.signatures[1].leaves
        return tuple((of := leaves.get(name)) is not None and not _is_shared(of, shared) for name in self.leaf_names)

    @cached_property
    def has_row_results(self) -> bool:
        """Whether all results have rows then; the cotangent of a shared input is a sum over the rows."""
        shared, returned = origin(self.op)[0].shared, {*self.kept, len(self.transforms)}
        return not any(key[0] in returned and _is_shared(it.shape, shared) for key, it in self.expected.items())

    def build(self, calculus: Calculus, leaves: Sequence[Tensor]) -> Results:
        """Return the tensors by level and name; those whose level is a string are only for checks.

        Raises ``OpFault`` if the op returns an invalid output or gradient.
        """
        (base, derivation), (before, own) = origin(self.op), self.signatures
        xs = dict(zip(self.leaf_names, leaves, strict=True))
        numbers = {name: xs.pop(name) for name in self.op.attrs.number_names()}
        sources = {name for transform in self.transforms for name in transform.wrt}
        sources |= {slot.name for slot in self.op.inputs}
        calculus.watch(x for name, x in xs.items() if name in sources and x.dtype.is_floating)
        differentiable = {slot.name for slot in base.outputs if base.is_differentiable(slot, self.dtype)}
        level = self._forward(base, [xs[slot.name] for slot in base.inputs], numbers)
        attrs = {**dict(self.static), **numbers}
        builder = Builder(base, attrs, calculus, xs, differentiable, level, self.orders)
        for transform, seeds in zip(derivation, before.seeds, strict=True):
            builder.return_shapes()
            builder.apply(transform, seeds)
        builder.level = {before.names[-1][name]: value for name, value in builder.level.items()}
        complex_slots = {ShapeOf(slot.name, is_leaf=True) for slot in base.inputs if slot.is_complex}
        complex_slots |= {ShapeOf(slot.name, is_leaf=False) for slot in base.outputs if slot.is_complex}
        results: dict[Key, Tensor | None] = {}
        for number, (transform, seeds) in enumerate(zip(self.transforms, own.seeds, strict=True)):
            if number in self.kept:
                results |= {(number, name): value for name, value in builder.level.items()}
            else:
                builder.return_shapes()
            batched = self.batched and number == len(self.transforms) - 1
            pairs = {name for name, of in own.levels[number].items() if of in complex_slots}
            if number and self.transforms[number - 1].rule == "half_square":
                pairs.clear()  # those are real numbers, two for each complex one
            builder.apply(transform, seeds, batched=batched, pairs=pairs)
        results |= {(len(self.transforms), name): value for name, value in builder.level.items()}
        return {**builder.shapes, **results}

    def _forward(self, op: Op, xs: Sequence[Tensor], numbers: Mapping[str, Tensor]) -> Level:
        """Return the outputs; raise ``OpFault`` for another number of them, or another type."""
        result = op.function(*xs, **dict(self.static), **numbers)
        ys, got = many(result), shown_kind(result)
        dtypes, where = {slot.name: op.dtype_of(slot, self.dtype) for slot in op.outputs}, located(op.function)
        if len(ys) != len(dtypes) or isinstance(result, Mapping):
            expected = f"one value for each of {', '.join(dtypes)}, in a tuple of this order"
            raise OpFault("forward", "its outputs", expected=expected, got=got, where=where)
        for (name, dtype), y in zip(dtypes.items(), ys, strict=True):
            if not isinstance(y, tf.Tensor) or y.dtype.name != dtype:
                got = y.dtype.name if isinstance(y, tf.Tensor) else "None" if y is None else type(y).__name__
                cure = ', or declare Output(dtypes=("complex64", "complex128"))' if "complex" in got else ""
                raise OpFault("forward", name, expected=f"a {dtype} tensor{cure}", got=got, where=where)
        return dict(zip(dtypes, ys, strict=True))


def _known_sizes(shape: Sequence[str | int], *, batched: bool) -> tuple[int | None, ...] | None:
    """Return the sizes of a symbolic shape, ``None`` for those that vary; ``None`` alone if the rank does."""
    if "..." in shape:
        return None
    sizes = (size if isinstance(size, int) else None for size in shape)
    return (None, *sizes) if batched else tuple(sizes)


def _is_shared(of: ShapeOf, shared: Sequence[str]) -> bool:
    return of.is_leaf and of.name in shared


Fields: TypeAlias = tuple[str, tuple[tuple[str, Any], ...], tuple[Transform, ...], tuple[int, ...], bool, int]
"""The fields of a program besides its op."""
PROGRAMS = OwnedCache[Fields, Program](1024)
_IN_USE, _lock = "_programs_in_use", threading.Lock()


def program_of(fields: tuple[Op, *Fields]) -> Program:
    """Return the program with these fields: the same object as long as anything refers to it, as its packings do."""
    op, *others = fields
    key = cast(Fields, tuple(others))
    if (known := PROGRAMS.get(op, key)) is not None:
        return known
    with _lock:
        in_use: WeakValueDictionary[Fields, Program] = vars(op).setdefault(_IN_USE, WeakValueDictionary())
        program = in_use.get(key)
        if program is None:
            program = in_use[key] = Program(*fields)
    return PROGRAMS.keep(op, key, program)


@dataclass(frozen=True)
class MappedProgram(Around[Traceable]):
    """A program at many points, for ops without a batch axis: a loop that calls the program's own trace.

    Every leaf and every result has a leading axis of points.
    """

    trace: Trace = field(compare=False)

    @property
    def reference(self) -> Reference:
        """That of the program."""
        reference = self.program.reference
        return reference._replace(kind=f"mapped {reference.kind}")

    @property
    def traits(self) -> Traits:
        """Those of the program, with the leading axis."""
        traits = self.program.traits
        return traits._replace(shapes=tuple(None if shape is None else (None, *shape) for shape in traits.shapes))

    def build(self, calculus: Calculus, leaves: Sequence[Tensor]) -> Results:
        """Return the program's results at each point, ``None`` for missing ones, without results that are shapes."""
        # TensorFlow prunes what computes the others.
        kinds = {key: kind for key, kind in self.trace.kinds.items() if not isinstance(key[0], str)}

        def at_point(rows: Sequence[Tensor]) -> list[Tensor]:
            results = self.trace.within_graph(rows)
            return [results[key] for key in kinds]

        # Points are cheap, and more threads take longer to share them than to compute them.
        dtypes = list(kinds.values())
        values = tf.map_fn(at_point, list(leaves), fn_output_signature=dtypes, parallel_iterations=1)
        return {**dict(zip(kinds, values, strict=True)), **dict.fromkeys(self.trace.missing)}
