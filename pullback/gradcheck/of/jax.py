"""Functions of JAX: ``jax+MODULE:FUNCTION``."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from itertools import chain
from typing import Any, ClassVar

import jax
import numpy as np

from pullback.dtypes import FLOATS, Array
from pullback.gradcheck.floats import narrowest
from pullback.gradcheck.function import Arrays
from pullback.gradcheck.of.calling import Tree, ordered
from pullback.gradcheck.of.source import Source, argument, call, part
from pullback.gradcheck.of.source import array as written

UNTRACEABLE = (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError)
"""What a function raises that cannot be compiled, because it looks at numbers."""

RANDOM = "random_", "threefry", "rng_"
"""How the names of primitives begin that draw random numbers."""


class JaxFunction:
    """A function of pytrees, whose leaves that are arrays of floats are the inputs. It runs compiled, if it can."""

    remark, has_layouts, checks_indices, has_solver, casts_to, draws = "", False, False, False, "", False
    dtypes: Sequence[str] = FLOATS
    _derive: Callable[..., Any] = staticmethod(jax.grad)
    """What differentiates a scalar."""
    _has_x64: ClassVar[bool | None] = None
    """Whether JAX had float64 when it traced last."""

    def __init__(self, function: Callable[..., Any]) -> None:
        """Keep the function; ``leaves`` sets its arguments."""
        self._function, self.mode = function, "jit"
        self._is_wide = False
        self._names, self._leaves, self._tree = list[str](), list[Any](), jax.tree_util.tree_structure(())
        self._compiled = dict[Any, Callable[..., Any]]()
        self._complex: Collection[str] = ()

    def leaves(self, arguments: Mapping[str, Tree]) -> dict[str, Array]:
        """Keep the arguments, and return the arrays of floats in them."""
        found, self._tree = jax.tree_util.tree_flatten_with_path(dict(arguments))
        self._names = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in found]
        self._leaves = [leaf for _, leaf in found]
        # They are constants of what is compiled.
        self._compiled = {}
        return {name: array(x) for name, x in _real(zip(self._names, self._leaves, strict=True))}

    def values(self, leaves: Arrays) -> dict[str, Array]:
        """Return the outputs."""
        return self._run("values", self._outputs, leaves)

    def vjp(self, leaves: Arrays, output: str, cotangent: Array, inputs: Sequence[str]) -> dict[str, Array]:
        """Return Jᵀ dy by input."""
        names = tuple(inputs)

        def pulled(leaves: Mapping[str, Any], dy: Any) -> dict[str, Any]:
            return self._gradient(leaves, output, dy, {name: leaves[name] for name in names})

        return self._run(("vjp", output, names), pulled, leaves, cotangent)

    def jvp(self, leaves: Arrays, name: str, tangent: Array, outputs: Sequence[str]) -> dict[str, Array]:
        """Return J tx by output, in forward mode; a function with ``custom_vjp`` has none."""
        names = tuple(outputs)

        def pushed(leaves: dict[str, Any], tangents: dict[str, Any]) -> dict[str, Any]:
            _, found = jax.jvp(self._outputs, (leaves,), (tangents,))
            return {key: found[key] for key in names}

        try:
            return self._run(("jvp", names), pushed, dict(leaves), _alone(leaves, name, tangent))
        except TypeError as error:
            raise NotImplementedError(str(error)) from error

    def hessian(self, leaves: Arrays, output: str, inputs: tuple[str, str], dy: Array, v: Array) -> Array:
        """Return ∂/∂b [Jₐᵀ dy] · v as the gradient of a gradient: that in a of ⟨J_bᵀ dy, v⟩."""

        def actions(leaves: dict[str, Any], dy: Any, v: dict[str, Any]) -> dict[str, Any]:
            def product(moved: dict[str, Any]) -> Any:
                slopes = self._gradient(moved, output, dy, moved)
                return sum(jax.numpy.vdot(slopes[name], v[name]) for name in v)

            return self._derive(product)(leaves)

        a, b = inputs
        return self._run(("hessian", output), actions, dict(leaves), dy, _alone(leaves, b, v))[a]

    def source(self, name: str, leaves: Arrays, output: str, cotangent: Array, wrt: str) -> tuple[str, str]:
        """Return a call of ``jax.vjp``."""
        sources = {key: _written(x) for key, x in leaves.items()} | {wrt: Source("x")}
        values = [
            argument(sources, key, "jax.lax.complex") or (_written(array(x)) if hasattr(x, "dtype") else x)
            for key, x in zip(self._names, self._leaves, strict=True)
        ]
        y = call(name, ordered(self._function, jax.tree_util.tree_unflatten(self._tree, values)))
        pull = f"jax.vjp(lambda x: {y}{part(output, self._complex)}, {_written(leaves[wrt])})[1]"
        setup = 'import jax; from jax import numpy as jnp; jax.config.update("jax_enable_x64", True)'
        return setup, f"{pull}({_written(cotangent)})[0]"

    def widened(self) -> "JaxFunction | None":
        """Return the function with float64 in place of each narrower dtype that it casts to, if it is compiled."""
        if self.mode == "eager":
            return None
        found = self._like("jit")
        found._is_wide = True
        return found

    def other(self, *, compiles: bool) -> "JaxFunction | None":
        """Return the function in eager mode, op by op, with the same arguments, if this one is compiled."""
        del compiles
        if self.mode == "eager":
            return None
        found = self._like("eager")
        found.casts_to = self.casts_to
        return found

    def _like(self, mode: str) -> "JaxFunction":
        """Return the function in another mode, with the same arguments."""
        found = type(self)(self._function)
        found.mode, found._names, found._leaves, found._tree = mode, self._names, self._leaves, self._tree
        return found

    def _run(self, key: Any, function: Callable[..., dict[str, Any]], *arrays: Any) -> dict[str, Array]:
        """Call a function of arrays, compiled once for each key and each dtype."""
        arrays = jax.tree_util.tree_map(_given, arrays)
        leaves = jax.tree_util.tree_leaves(arrays)
        # Without float64 among the arrays, JAX runs as it does by default: constants are of float32.
        is_wide = any(x.dtype == np.float64 for x in leaves)
        with jax.enable_x64(is_wide), jax.disable_jit(self.mode == "eager"):
            compiled, of_dtypes = function, (key, *((x.shape, x.dtype) for x in leaves))
            if self.mode != "eager":
                try:
                    if of_dtypes not in self._compiled:
                        self._compiled[of_dtypes] = self._compile(function, arrays, is_first=key == "values")
                    compiled = self._compiled[of_dtypes]
                except UNTRACEABLE:
                    if self._is_wide:
                        raise
                    self.mode = "eager"
            return {name: array(x) for name, x in compiled(*arrays).items()}

    def _compile(self, function: Callable[..., Any], arrays: Any, *, is_first: bool) -> Callable[..., Any]:
        """Return the function compiled; if it ``is_first``, note its solvers, casts and random numbers."""
        # With and without x64, JAX would take an array of NumPy in a function with jit for one of the same dtype.
        if JaxFunction._has_x64 != jax.config.jax_enable_x64:
            jax.clear_caches()
            JaxFunction._has_x64 = jax.config.jax_enable_x64
        with _without_casts() if self._is_wide else nullcontext():
            traced = jax.jit(function).trace(*arrays)
            if is_first and not self._is_wide:
                equations = [*_equations(traced.jaxpr.jaxpr)]
                self.has_solver = any(map(_is_solver, equations))
                self.draws = any(each.primitive.name.startswith(RANDOM) for each in equations)
                self.casts_to = narrowest(casts) if (casts := {*chain(*map(_casts, equations))}) else ""
            return traced.lower().compile()

    def _gradient(self, leaves: Mapping[str, Any], output: str, dy: Any, wrt: Mapping[str, Any]) -> dict[str, Any]:
        def product(xs: Mapping[str, Any]) -> Any:
            return jax.numpy.vdot(self._outputs({**leaves, **xs})[output], dy)

        if self._derive is jax.jacfwd:
            return jax.jacfwd(product)(dict(wrt))
        _, pull = jax.vjp(lambda xs: self._outputs({**leaves, **xs})[output], dict(wrt))
        return pull(dy)[0]

    def _outputs(self, leaves: Mapping[str, Any]) -> dict[str, Any]:
        arrays = [_whole(leaves, name, x) for name, x in zip(self._names, self._leaves, strict=True)]
        arguments = jax.tree_util.tree_unflatten(self._tree, arrays)
        found, _ = jax.tree_util.tree_flatten_with_path(self._function(**arguments))
        named = {jax.tree_util.keystr(path, simple=True, separator=".") or "y": y for path, y in found}
        self._complex = [name for name, y in named.items() if _is_complex(y)]
        return dict(_real(named.items()))


class ForwardFunction(JaxFunction):
    """A function without reverse mode: its gradients are those of forward mode."""

    _derive = staticmethod(jax.jacfwd)


LIBRARY, FORWARD = JaxFunction, ForwardFunction


def _alone(leaves: Arrays, name: str, x: Array) -> dict[str, Array]:
    """Return a direction in one input, with zeros for the others: what takes it is compiled once for all inputs."""
    return {key: x if key == name else np.zeros_like(leaf) for key, leaf in leaves.items()}


def is_float(x: object) -> bool:
    """Return whether a value is an array, or a number, of real floats."""
    return isinstance(x, float) or (hasattr(x, "dtype") and jax.numpy.issubdtype(x.dtype, jax.numpy.floating))


def array(x: Any) -> Array:
    """Return the numbers of an array of JAX, in its dtype; the bits of bfloat16."""
    found = np.asarray(x)
    return found.view(np.uint16) if found.dtype.name == "bfloat16" else found


def _given(x: Array) -> Array:
    """Return an array for JAX, of which uint16 is the bits of bfloat16."""
    return x.view(jax.numpy.bfloat16.dtype) if x.dtype == np.uint16 else x


def _is_complex(x: object) -> bool:
    return hasattr(x, "dtype") and jax.numpy.issubdtype(x.dtype, jax.numpy.complexfloating)


def _real(named: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield the arrays of floats, and both parts of complex ones."""
    for name, x in named:
        if _is_complex(x):
            yield from ((f"{name}.real", x.real), (f"{name}.imag", x.imag))
        elif is_float(x):
            yield name, x


def _whole(leaves: Mapping[str, Any], name: str, x: Any) -> Any:
    """Return an argument: one of the leaves, a complex one of its two parts, or the argument itself."""
    if f"{name}.real" in leaves:
        return jax.lax.complex(leaves[f"{name}.real"], leaves[f"{name}.imag"])
    return jax.numpy.asarray(leaves[name]) if name in leaves else x


def _written(x: Array) -> Source:
    return written("jnp.array", x, "jnp")


def _equations(jaxpr: Any) -> Iterator[Any]:
    """Yield the equations of a trace, and of the traces within."""
    for each in jaxpr.eqns:
        yield each
        for value in each.params.values():
            for inner in value if isinstance(value, tuple | list) else (value,):
                if hasattr(inner, "eqns"):
                    yield from _equations(getattr(inner, "jaxpr", inner))


def _is_solver(equation: Any) -> bool:
    """Return whether an equation is a loop that ends where floats say so."""
    is_loop = equation.primitive.name == "while"
    return is_loop and any(_floats(each.invars) for each in _equations(equation.params["cond_jaxpr"]))


def _casts(equation: Any) -> list[str]:
    """Return the dtypes that an equation rounds floats to."""
    widest = max((dtype.itemsize for dtype in _floats(equation.invars)), default=0)
    return [dtype.name for dtype in _floats(equation.outvars) if dtype.itemsize < widest and dtype.name in FLOATS]


def _floats(variables: Any) -> list[Any]:
    dtypes = [x.aval.dtype for x in variables if hasattr(x.aval, "dtype")]
    return [dtype for dtype in dtypes if jax.numpy.issubdtype(dtype, np.floating)]


@contextmanager
def _without_casts() -> Iterator[None]:
    """Trace casts to narrower floats as casts to float64; traces from before, and these after it, are dropped."""
    primitive: Any = jax.lax.convert_element_type_p
    bind = primitive.bind

    def wide(x: Any, *, new_dtype: Any, **parameters: Any) -> Any:
        before, after = (jax.numpy.dtype(dtype) for dtype in (getattr(x, "dtype", new_dtype), new_dtype))
        are_floats = all(jax.numpy.issubdtype(dtype, np.floating) for dtype in (before, after))
        is_narrower = are_floats and after.itemsize < before.itemsize
        return bind(x, new_dtype=np.float64 if is_narrower else new_dtype, **parameters)

    jax.clear_caches()
    primitive.bind = wide
    try:
        yield
    finally:
        del primitive.bind
        jax.clear_caches()
