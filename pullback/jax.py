"""Ops of a service as functions of JAX: ``grad``, ``jvp``, ``hessian``, ``jit``, ``vmap`` and their compositions work.

::

    import pullback.jax

    log1pexp = pullback.jax.remote("log1pexp", url="http://127.0.0.1:8000")
    jax.jit(jax.hessian(lambda x: log1pexp(x).sum()))(x)

One primitive stands for an op after any path of derivations; its rules are those of ``Derivative``.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.sharding import PartitionSpec

from pullback.gradcheck.jax_check_grads import check_grads
from pullback.graph_values import is_traced
from pullback.remotes import Derivative, Function, TensorType, batch, evaluate

__all__ = ["check_grads", "compose", "remote"]


class RemoteFunction(Function):
    """An op of a service as a function of its inputs, by position in the contract's order.

    It returns an array, or a tuple if the op has several outputs, in the dtype of its arguments. Inputs and outputs
    that are not differentiable have a gradient of zero, or of ``float0`` if they are integers.

    It raises ``BadArgument`` for shapes that do not match, and the error of the service if it refuses a call; under
    ``jit`` JAX raises its own, with that of the service in its message: a ``JaxRuntimeError``, or a ``ValueError`` if
    the program ran before.
    """

    def __call__(self, *inputs: Any) -> Any:
        """Return the outputs."""
        if is_traced(inputs):
            return self.in_graph(inputs)
        p, given = self.given(inputs)
        outputs = _bind(*map(jnp.asarray, given), p=p)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)


remote, compose = RemoteFunction.remote, RemoteFunction.compose


def _bind(
    *arrays: Any, p: Derivative, batched: bool = False, points: bool = False, ahead: bool = False
) -> list[jax.Array]:
    """Apply the primitive to whole arrays; in ``shard_map`` they must vary over the same axes of the mesh."""
    whole = [_whole(x) for x in arrays]
    varying = [jax.typeof(x).manual_axis_type.varying for x in whole]
    every = frozenset[Any]().union(*varying)
    alike = [
        jax.lax.pcast(x, tuple(every - axes), to="varying") if every - axes else x
        for x, axes in zip(whole, varying, strict=True)
    ]
    return _remote.bind(*alike, p=p, batched=batched, points=points, ahead=ahead)


def _whole(array: Any) -> Any:
    """Return an array whose type shards it, over the explicit axes of a mesh, as one that is not sharded."""
    sharding = jax.typeof(array).sharding
    if all(part is None for part in sharding.spec):
        return array
    return jax.sharding.reshard(array, sharding.update(spec=_unsharded(array)))


_remote = Primitive("pullback_remote")
_remote.multiple_results = True


def _evaluated(*arrays: Any, dtypes: Sequence[Any], p: Derivative, **how: bool) -> list[np.ndarray]:
    """Evaluate outside of JAX. A callback that returned arrays of JAX could wait for itself.

    The ``dtypes`` are those of the trace: XLA may call from a thread where ``enable_x64`` is another.
    """
    found = evaluate(p, [np.asarray(array) for array in arrays], **how)
    return [x.astype(dtype, copy=False) for x, dtype in zip(found, dtypes, strict=True)]


@_remote.def_impl
def _impl(*arrays: Any, p: Derivative, batched: bool, points: bool, ahead: bool) -> list[jax.Array]:
    given = [np.asarray(array) for array in arrays]
    return [jnp.asarray(x) for x in evaluate(p, given, batched=batched, points=points, ahead=ahead)]


@_remote.def_abstract_eval
def _abstract(*avals: Any, p: Derivative, batched: bool, points: bool, ahead: bool) -> list[Any]:
    del ahead
    # The results vary over the axes of the mesh that the inputs vary over.
    like = next((aval for aval in avals if not aval.sharding.mesh.empty), avals[0])
    return [
        like.update(shape=t.shape, dtype=t.dtype, weak_type=False, sharding=like.sharding.update(spec=_unsharded(t)))
        for t in _types(avals, p, batched, points)
    ]


def _types(arrays: Sequence[Any], p: Derivative, batched: bool, points: bool) -> list[jax.ShapeDtypeStruct]:
    types = p.types([TensorType.of(x) for x in arrays], batched=batched, points=points)
    return [jax.ShapeDtypeStruct(t.shape, jax.dtypes.canonicalize_dtype(t.dtype)) for t in types]


def _unsharded(array: Any) -> PartitionSpec:
    return PartitionSpec(*[None] * len(array.shape))


def _callback(*arrays: Any, p: Derivative, batched: bool, points: bool, ahead: bool) -> list[jax.Array]:
    types = _types(arrays, p, batched, points)
    dtypes = [t.dtype for t in types]
    callback = partial(_evaluated, dtypes=dtypes, p=p, batched=batched, points=points, ahead=ahead)
    return jax.pure_callback(callback, types, *arrays, vmap_method="sequential")


_lower_callback = mlir.lower_fun(_callback, multiple_results=True)


def _lower(ctx: Any, *operands: Any, p: Derivative, batched: bool, points: bool, ahead: bool) -> Any:
    """Lower to a callback; on a single CPU to one that gets NumPy arrays, since moving them to JAX takes 0.1 ms."""
    context = ctx.module_context
    if tuple(context.platforms) != ("cpu",) or getattr(context.axis_context, "num_devices", None) != 1:
        return _lower_callback(ctx, *operands, p=p, batched=batched, points=points, ahead=ahead)
    dtypes = [aval.dtype for aval in ctx.avals_out]
    callback = partial(_evaluated, dtypes=dtypes, p=p, batched=batched, points=points, ahead=ahead)
    results, _, _ = mlir.emit_python_callback(
        ctx, callback, None, operands, ctx.avals_in, ctx.avals_out, has_side_effect=False, returns_token=False
    )
    return results


mlir.register_lowering(_remote, _lower, cacheable=False)


def _jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, p: Derivative, batched: bool, points: bool, ahead: bool
) -> tuple[list[Any], list[Any]]:
    del ahead
    is_derived = not all(isinstance(tangents[i], ad.Zero) for i in p.differentiable_inputs)
    outputs = _bind(*primals, p=p, batched=batched, points=points, ahead=is_derived and not p.path)
    found: list[Any] = [ad.Zero(jax.typeof(output).to_tangent_aval()) for output in outputs]
    if not is_derived:
        return outputs, found
    seeds = [ad.instantiate_zeros(tangents[i]) for i in p.differentiable_inputs]
    differentiate = partial(_bind, p=p.jvp, points=points)
    if batched:
        # The directions of the last derivation, and their tangents, are many; the point is one, or has its own axis.
        many = int(points)
        axes = [None if i < p.parent.arity else many for i in range(p.arity)]
        in_axes = (*axes, *(axes[i] for i in p.differentiable_inputs))
        differentiate = jax.vmap(differentiate, in_axes=in_axes, out_axes=many)
    for i, tangent in zip(p.differentiable_outputs, differentiate(*primals, *seeds), strict=True):
        found[i] = tangent
    return outputs, found


ad.primitive_jvps[_remote] = _jvp


def _transpose(
    cotangents: Sequence[Any], *arrays: Any, p: Derivative, batched: bool, points: bool, ahead: bool
) -> list[Any]:
    """Transpose in the directions of the last derivation: a jvp and a vjp are each other's transposes.

    JAX transposes complex numbers without a conjugate, and the service with one.
    """
    at = arrays[: p.parent.arity]
    transposed = p.parent.vjp if p.path[-1] == "jvp" else p.parent.jvp
    seeds = [_conj(ad.instantiate_zeros(cotangent)) for cotangent in cotangents]
    found = _bind(*at, *seeds, p=transposed, batched=batched, points=points, ahead=ahead)
    is_linear = [ad.is_undefined_primal(array) for array in arrays[len(at) :]]
    return [*(None for _ in at), *(_conj(x) if linear else None for x, linear in zip(found, is_linear, strict=True))]


def _conj(array: jax.Array) -> jax.Array:
    return jnp.conj(array) if jnp.iscomplexobj(array) else array


ad.primitive_transposes[_remote] = _transpose


def _batch(
    arrays: Sequence[Any], dims: Sequence[Any], *, p: Derivative, batched: bool, points: bool, ahead: bool
) -> tuple[list[Any], list[int]]:
    size = next(x.shape[dim] for x, dim in zip(arrays, dims, strict=True) if dim is not None)
    call = partial(_bind, p=p, ahead=ahead)
    found = batch(p, arrays, dims, size, batched=batched, points=points, call=call, xp=jnp)
    if found is not None:
        outputs, axis = found
        return outputs, [axis] * len(outputs)

    def one(parts: Sequence[Any]) -> list[Any]:
        rest = iter(parts)
        given = (x if dim is None else next(rest) for x, dim in zip(arrays, dims, strict=True))
        return _bind(*given, p=p, batched=batched, points=points, ahead=ahead)

    parts = [jnp.moveaxis(x, dim, 0) for x, dim in zip(arrays, dims, strict=True) if dim is not None]
    outputs = jax.lax.map(one, parts)
    return outputs, [0] * len(outputs)


batching.primitive_batchers[_remote] = _batch
