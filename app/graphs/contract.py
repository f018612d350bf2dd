"""The contract of a graph: its inputs and outputs follow from those of its nodes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from app.autodiff.derived import variant_of
from app.autodiff.symbolic_shapes import shape_text
from app.errors import Loc, wrong
from app.graphs.document import MAX_RANK, GraphDocument, GraphInput
from app.graphs.shapes import Mismatch, Namer, Rest, Shapes, Size, Term, Terms
from app.graphs.wiring import Fixed, Node, Value
from app.tensors.casting import describe
from ops import ANY_SHAPE, FLOATS, Attrs, Input, Output

Pattern: TypeAlias = tuple[str | int, ...]


# Each node has its type variable. Those that no fixed dtype determines are one type variable, that of the graph.
class Variable:
    """The type variable of a node, and the dtypes that it may stand for, the default first."""

    def __init__(self, dtypes: tuple[str, ...]) -> None:
        """Take the dtypes."""
        self.dtypes = dtypes
        self._same_as: Variable | None = None

    @property
    def root(self) -> "Variable":
        """The variable that this one was made equal to."""
        found = self
        while found._same_as is not None:
            found = found._same_as
        return found

    def merge(self, other: "Variable") -> bool:
        """Make two variables equal; return whether they have a dtype in common."""
        one, two = self.root, other.root
        if one is not two:
            two._same_as, one.dtypes = one, tuple(dtype for dtype in one.dtypes if dtype in two.dtypes)
        return bool(one.dtypes)

    def restrict(self, accepts: Callable[[str], bool]) -> bool:
        """Keep the dtypes that are accepted; return whether there are any."""
        self.root.dtypes = tuple(dtype for dtype in self.root.dtypes if accepts(dtype))
        return bool(self.root.dtypes)


ElementType: TypeAlias = str | Variable


def dtypes_of(kind: ElementType) -> tuple[str, ...]:
    """Return the dtypes that a value may have."""
    return (kind,) if isinstance(kind, str) else kind.root.dtypes


def unify(one: ElementType, other: ElementType) -> bool:
    """Make two element types equal; return whether they can be."""
    if isinstance(one, Variable):
        if isinstance(other, Variable):
            return one.merge(other)
        return one.restrict(lambda dtype: dtype == other)
    if isinstance(other, Variable):
        return other.restrict(lambda dtype: dtype == one)
    return one == other


@dataclass(frozen=True, eq=False)
class Typed:
    """A node with its dtype and shapes, in the symbols of the contract.

    ``dtype`` is that of the node's type variable, ``None``: the graph's. ``symbols`` has what each symbol of the op
    stands for, a pattern for ``"..."``. A constant of ``filled`` takes the shape of another input, which it names.
    """

    node: Node
    dtype: str | None
    symbols: Mapping[str, Pattern]
    filled: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class Contract:
    """The inputs and outputs of a graph, and its nodes."""

    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    nodes: tuple[Typed, ...]
    null_gradients: tuple[str, ...]


class Inference:
    """The inference of shapes and dtypes, node after node."""

    def __init__(self, document: GraphDocument, attrs: type[Attrs]) -> None:
        """Begin with what the document says of the inputs."""
        self._document, self._attrs = document, attrs
        self._shapes, self._named, self._rest = Shapes(), dict[str, Size](), Rest()
        self._terms, self._kinds = dict[Value, Terms](), dict[Value, ElementType | None]()
        self._variables, self._symbols = dict[str, Variable](), dict[str, dict[str, Terms]]()
        self._seconds = dict[str, Variable]()
        self._filled = dict[str, dict[str, str]]()
        for slot in document.slots:
            value = Value("", slot.name)
            self._terms[value] = (Rest(),) if slot.shape is None else tuple(map(self._declared, slot.shape))
            self._kinds[value] = None

    def _declared(self, size: str | int) -> Term:
        if size == "..." or isinstance(size, int):
            return self._rest if isinstance(size, str) else size
        if size in self._attrs.model_fields:
            return size
        return self._named.setdefault(size, Size(size))

    def add(self, node: Node, at: Loc) -> None:
        """Infer the outputs of a node; raises ``Unprocessable`` for inputs that it does not accept."""
        op, rest = node.op, Rest()
        variable, second, sizes = Variable(op.dtypes), Variable(op.general.second_dtypes), dict[str, Term]()
        self._variables[node.name], self._seconds[node.name], self._filled[node.name] = variable, second, {}
        every = {slot.name: slot.dtypes for slot in (*op.general.inputs, *op.general.outputs)}

        def kind_of(slot: Input | Output) -> ElementType:
            if len(every[slot.name]) > 1 and every[slot.name] == op.general.second_dtypes:
                return second
            return slot.dtypes[0] if len(slot.dtypes) == 1 else variable

        for name in op.attrs.static_names():
            if name in node.bound:
                sizes[name] = node.bound[name]
            elif isinstance(node.fixed[name], int):
                sizes[name] = int(node.fixed[name])

        def term(size: str | int) -> Term:
            if size == "...":
                return rest
            return size if isinstance(size, int) else sizes.setdefault(size, Size(size))

        patterns = {slot.name: tuple(map(term, slot.shape)) for slot in (*op.inputs, *op.outputs)}
        for slot in op.inputs:
            source, loc = node.sources[slot.name], (*at, "inputs", slot.name)
            self._connect_dtype(node, source, kind_of(slot), loc)
            if isinstance(source, Fixed) and not source.shape and slot.shape == ANY_SHAPE:
                like = next((other.name for other in op.inputs if _gives_shape(node, other)), None)
                if like is not None:
                    self._filled[node.name][slot.name] = like
                    continue
            self._connect_shape(node, source, patterns[slot.name], slot.shape, loc)
        for slot in op.outputs:
            value = Value(node.name, slot.name)
            self._terms[value] = patterns[slot.name]
            self._kinds[value] = kind_of(slot)
        self._symbols[node.name] = {"...": (rest,), **{name: (size,) for name, size in sizes.items()}}

    def _connect_dtype(self, node: Node, source: Value | Fixed, kind: ElementType, at: Loc) -> None:
        if isinstance(source, Fixed):
            if isinstance(kind, str):
                source.array(kind)  # raises what is wrong
            elif not kind.restrict(source.fits):
                message = f"no dtype of op {node.op.name} has this value"
                raise wrong(at, message, expected=f"one of {', '.join(node.op.dtypes)}", got=describe(source.value))
            return
        before = self._kinds[source]
        if before is None:
            self._kinds[source] = kind
            return
        expected, got = (", ".join(dtypes_of(each)) for each in (kind, before))
        if not unify(before, kind):
            message = f"node {node.name} has no dtype in common with {_text(source)}; a cast between them changes that"
            raise wrong(at, message, expected=f"one of {expected}", got=got)

    def _connect_shape(
        self, node: Node, source: Value | Fixed, pattern: Terms, shown: Sequence[str | int], at: Loc
    ) -> None:
        terms = source.shape if isinstance(source, Fixed) else self._terms[source]
        before, namer = self._shapes.resolved(terms), Namer(())
        try:
            self._shapes.unify(terms, pattern)
            if len(self._shapes.resolved(pattern)) > MAX_RANK + 1:
                raise Mismatch
        except Mismatch:
            what = "the constant" if isinstance(source, Fixed) else _text(source)
            message = f"node {node.name} does not accept the shape of {what}"
            wanted = Namer(()).pattern(self._shapes.resolved(pattern))
            expected = f"{shape_text(wanted)}, that is {shape_text(shown)}"
            raise wrong(at, message, expected=expected, got=shape_text(namer.pattern(before))) from None

    def contract(self, nodes: Sequence[Node], values: Mapping[str, Value]) -> Contract:
        """Return the contract of the graph with these outputs."""
        self._settle_dtypes(nodes)
        namer = Namer(self._attrs.model_fields)
        namer.keep({name: self._shapes.resolved((size,))[0] for name, size in self._named.items()})
        self._check_rests()
        reach = _reach(nodes, values)
        inputs = tuple([self._input(slot, nodes, namer, reach) for slot in self._document.slots])
        differentiable = _differentiable_values(nodes)
        outputs = tuple(
            [self._output(name, value, nodes, namer, differentiable[value]) for name, value in values.items()]
        )
        typed: list[Typed] = []
        for node in nodes:
            symbols = {
                name: namer.pattern(self._shapes.resolved(terms)) for name, terms in self._symbols[node.name].items()
            }
            dtype = self._variables[node.name].root
            fixed = dtype.dtypes[0] if len(dtype.dtypes) == 1 else None
            typed.append(Typed(self._in_dtypes(node), fixed, symbols, self._filled[node.name]))
        null = tuple([slot.name for slot in inputs if slot.differentiable and reach[slot.name] == "null"])
        return Contract(inputs, outputs, tuple(typed), null)

    def _in_dtypes(self, node: Node) -> Node:
        """Return a node whose op has its second type variable, if it has one: ``_settle_dtypes`` leaves one dtype."""
        if not (names := node.op.general.second_names):
            return node
        sent: dict[str, str | None] = dict.fromkeys(node.sources)
        return replace(
            node, op=variant_of(node.op.general, sent | dict.fromkeys(names, self._seconds[node.name].root.dtypes[0]))
        )

    def _settle_dtypes(self, nodes: Sequence[Node]) -> None:
        """Make the type variables that are not determined one, that of the graph."""
        free, first = None, ""
        for second in self._seconds.values():
            second.restrict(second.root.dtypes[:1].__contains__)
        for i, node in enumerate(nodes):
            variable = self._variables[node.name]
            if len(variable.root.dtypes) > 1:
                expected = ", ".join(free.root.dtypes if free else ())
                if free is not None and not free.merge(variable):
                    got = ", ".join(node.op.dtypes)
                    message = f"node {node.name} has no dtype in common with node {first}"
                    raise wrong(("nodes", i, "op"), message, expected=f"one of {expected}", got=got)
                free, first = variable.root, first or node.name
        if free is None or len(free.root.dtypes) == 1:
            return
        kinds = [kind for slot in self._document.slots if (kind := self._kinds[Value("", slot.name)]) is not None]
        if self._attrs.number_names():
            free.restrict(lambda dtype: dtype in FLOATS)
        if not any(isinstance(kind, Variable) and kind.root is free.root for kind in kinds):
            # Nothing that a request sends would say which it is.
            default = free.root.dtypes[0]
            free.restrict(lambda dtype: dtype == default)

    def _check_rests(self) -> None:
        found: dict[Term, str] = {}
        for slot in self._document.slots:
            for term in self._shapes.resolved(self._terms[Value("", slot.name)]):
                if isinstance(term, Rest):
                    found.setdefault(term, slot.name)
        if len(found) > 1:
            names = list(found.values())[:2]
            message = "two inputs have any number of dimensions, and nothing makes these equal"
            at = next(i for i, slot in enumerate(self._document.slots) if slot.name == names[1])
            expected = f'a shape of {names[0]} or {names[1]} in the document, such as ["N"], or ["..."] for both'
            raise wrong(("inputs", at, "shape"), message, expected=expected, got="none")

    def _input(self, slot: GraphInput, nodes: Sequence[Node], namer: Namer, reach: Mapping[str, str]) -> Input:
        value = Value("", slot.name)
        kind, pattern = self._kinds[value], namer.pattern(self._shapes.resolved(self._terms[value]))
        dtypes = FLOATS if kind is None else dtypes_of(kind)
        uses = [use for node in nodes for use in node.op.inputs if node.sources[use.name] == value]
        more: dict[str, Any] = {}
        domains = [use.domain for use in uses if use.has_domain]
        low, high = max((d[0] for d in domains), default=0.0), min((d[1] for d in domains), default=0.0)
        if slot.domain is not None:
            more["domain"] = tuple(slot.domain)
        elif low < high:
            more["domain"] = (low, high)
        more["kinks"] = tuple(sorted({kink for use in uses for kink in use.kinks}))
        more["poles"] = tuple(sorted({pole for use in uses for pole in use.poles}))
        doc = slot.doc or next((use.doc for use in uses if use.doc), "")
        try:
            differentiable = bool(reach[slot.name]) and any(dtype in FLOATS for dtype in dtypes)
            return Input(slot.name, dtypes, pattern, differentiable=differentiable, doc=doc, **more)
        except ValueError as error:
            at = next(i for i, each in enumerate(self._document.slots) if each.name == slot.name)
            raise wrong(("inputs", at), "invalid input", expected="a valid input", got=str(error)) from None

    def _output(self, name: str, value: Value, nodes: Sequence[Node], namer: Namer, differentiable: bool) -> Output:
        kind, pattern = self._kinds[value], namer.pattern(self._shapes.resolved(self._terms[value]))
        assert kind is not None, "values of nodes have a dtype"
        doc = next(
            slot.doc for node in nodes if node.name == value.node for slot in node.op.outputs if slot.name == value.name
        )
        return Output(name, dtypes_of(kind), pattern, differentiable=differentiable, doc=doc)


def _gives_shape(node: Node, slot: Input) -> bool:
    """Return whether an input of a node has the shape that a number takes."""
    source = node.sources[slot.name]
    return slot.shape == ANY_SHAPE and (isinstance(source, Value) or bool(source.shape))


def _differentiable_values(nodes: Sequence[Node]) -> Mapping[Value, bool]:
    """Return for each output of a node whether derivatives reach it from any input of the graph."""
    found: dict[Value, bool] = {}
    for node in nodes:
        slots = {slot.name: slot for slot in node.op.inputs}
        is_reached = any(
            slots[name].differentiable and (not value.node or found[value]) for name, value in node.values()
        )
        for slot in node.op.outputs:
            found[Value(node.name, slot.name)] = slot.differentiable and is_reached
    return found


def _reach(nodes: Sequence[Node], values: Mapping[str, Value]) -> Mapping[str, str]:
    """Return how derivatives of the outputs reach each input: not (""), as ``null`` on purpose, or as a ``value``."""
    best: dict[Value, str] = dict.fromkeys(values.values(), "value")
    order = ("", "null", "value")
    found: dict[str, str] = {}
    for node in reversed(nodes):
        slots = {slot.name: slot for slot in node.op.inputs}
        of_outputs = [best.get(Value(node.name, y.name), "") if y.differentiable else "" for y in node.op.outputs]
        of_node = max(of_outputs, key=order.index)
        for name, value in node.values():
            of_slot = "" if not slots[name].differentiable else "null" if name in node.op.null_gradients else "value"
            best[value] = max(best.get(value, ""), min(of_node, of_slot, key=order.index), key=order.index)
            if not value.node:
                found[value.name] = best[value]
    return found


def _text(value: Value) -> str:
    return f"{value.node}.{value.name}" if value.node else f"input {value.name}"
