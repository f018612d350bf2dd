"""Products in which NaN reaches whatever it may reach at any point: through all branches of every choice by values.

The vjp of ``tf.where``, ``tf.maximum`` or ``tf.nn.relu`` passes a direction on where a condition holds. Here it passes
everywhere: while the pullback of the directions is built, each elementwise kernel that a direction enters is replaced
by the sum of its operands that depend on directions. Kernels that move, add and multiply numbers pass NaN as they are.
Where a direction enters any other kernel, such as a sort, a branch or an index that is computed, nothing is known.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

# Private, because no public function replaces the outputs of operations while a graph is built.
from tensorflow.python.framework import op_callbacks

from app.autodiff.evaluation import Evaluation
from app.autodiff.programs import Program
from app.runtime.calculus import Calculus, Gradients, Graph, Pullback
from app.runtime.inlining import inlined
from app.runtime.modes import Around, Key, Results, Traits, run
from app.runtime.op_errors import expected_errors, op_errors
from app.runtime.trace_entry import Reference
from ops import Tensor

# fmt: off
# Each number of the result depends on those at its own place, which are broadcast.
_ELEMENTWISE = """
Abs Acos Acosh Add AddV2 Asin Asinh Atan Atan2 Atanh CheckNumerics ClipByValue Conj Cos Cosh Digamma Div DivNoNan Elu
EluGrad EnsureShape Erf Erfc Erfinv Exp Expm1 Identity Inv InvGrad LeakyRelu LeakyReluGrad Lgamma Log Log1p Maximum
Minimum Mul MulNoNan Ndtri Neg Pow PreventGradient RealDiv Reciprocal ReciprocalGrad Relu Relu6 Relu6Grad ReluGrad
Rsqrt RsqrtGrad Select SelectV2 Selu SeluGrad Sigmoid SigmoidGrad Sin Sinh Softplus SoftplusGrad Softsign SoftsignGrad
Sqrt SqrtGrad Square SquaredDifference StopGradient Sub Tan Tanh TanhGrad Xdivy Xlog1py Xlogy
"""
# Their results depend on the shapes of their operands alone.
OF_SHAPES = frozenset(["OnesLike", "Rank", "Shape", "ShapeN", "Size", "ZerosLike"])
# They move, add and multiply numbers, so that NaN passes. The numbers are all operands, or those at these places; the
# others say where to, and must follow from shapes and constants.
_ALL = """
AddN BatchMatMul BatchMatMulV2 BatchMatMulV3 BiasAdd Complex Conv2D DepthwiseConv2dNative Einsum IdentityN MatMul
"""
_FIRST = """
AvgPool BatchToSpaceND BiasAddGrad BroadcastTo Cast ConjugateTranspose Cumsum DepthToSpace Diag DiagPart ExpandDims
FFT FFT2D FFT3D Gather GatherNd GatherV2 IFFT IFFT2D IFFT3D IRFFT IRFFT2D Imag MatrixBandPart MatrixDiag MatrixDiagPart
Mean MirrorPad MirrorPadGrad Pad RFFT RFFT2D Real Reshape Reverse ReverseSequence ReverseV2 Roll SegmentSum SegmentSumV2
Slice SpaceToBatchND SpaceToDepth SplitV Squeeze StridedSlice Sum Tile Transpose Unpack UnsortedSegmentSum
"""
_AT: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(_FIRST.split(), (0,)),
    **dict.fromkeys(("AvgPoolGrad", "ScatterNd", "Split"), (1,)),
    **dict.fromkeys(("Conv2DBackpropInput", "DepthwiseConv2dNativeBackpropInput"), (1, 2)),
    **dict.fromkeys(("Conv2DBackpropFilter", "DepthwiseConv2dNativeBackpropFilter"), (0, 2)),
    **dict.fromkeys(("MatrixDiagPartV2", "MatrixDiagPartV3", "PadV2"), (0, 2)),
    **dict.fromkeys(("MatrixDiagV2", "MatrixDiagV3"), (0, 4)),
    **dict.fromkeys(("MatrixSetDiag", "MatrixSetDiagV2", "MatrixSetDiagV3"), (0, 1)),
    **dict.fromkeys(("TensorScatterAdd", "TensorScatterSub", "TensorScatterUpdate"), (0, 2)),
    "StridedSliceGrad": (4,),
}
# fmt: on
ELEMENTWISE, _MIXED = frozenset(_ELEMENTWISE.split()), frozenset(_ALL.split())
Result = TypeVar("Result")
# The key of the result that says whether every kernel is known.
IS_KNOWN: Key = ("is known", "")


# A kernel that is in no table may choose by values: which element it reads, which branch it takes.
def numbers_of(kernel: str, operands: int) -> Sequence[int] | None:
    """Return the places of the operands that a kernel moves, adds or multiplies; ``None`` for any other kernel."""
    match kernel:
        case "ConcatV2":
            return range(operands - 1)
        case "DynamicStitch" | "ParallelDynamicStitch":
            return range(operands // 2, operands)
        case "Pack":
            return range(operands)
        case _:
            return range(operands) if kernel in _MIXED else _AT.get(kernel)


class UnknownBranches(Exception):
    """A direction enters a kernel that may choose by values."""


def run_in_all_branches(evaluation: Evaluation[Result]) -> Result:
    """Run a batched evaluation so that a NaN in its directions reaches all that it may reach at any point.

    Raises ``UnknownBranches``, and as ``Evaluation.run``.
    """
    op, device = evaluation.point.op, evaluation.point.spec.device
    if "graph" not in op.modes or op.is_complex:
        raise UnknownBranches
    with op_errors(op.name), expected_errors():
        results = run(AllBranches(evaluation.program), "graph", evaluation.leaves, device)
    if not results.pop(IS_KNOWN):
        raise UnknownBranches
    return evaluation.finish(results)


@dataclass(frozen=True)
class AllBranches(Around[Program]):
    """A batched program whose last pullback passes its directions through all branches."""

    @property
    def reference(self) -> Reference:
        """That of the program."""
        return self.program.reference._replace(kind="all branches")

    @property
    def traits(self) -> Traits:
        """Those of the program, which runs a few times."""
        return self.program.traits._replace(is_optimized=False)

    def build(self, calculus: Calculus, leaves: Sequence[Tensor]) -> Results:
        """Return the program's results, and whether every kernel on the way of a direction is known."""
        del calculus
        followed = _Followed()
        with inlined():
            results = self.program.build(followed, leaves)
        return {**results, IS_KNOWN: tf.constant(np.bool_(followed.is_known))}


class _Followed(Graph):
    """The calculus of a graph that follows the directions of a pullback."""

    is_known = True

    def each(self, pullback: Pullback, directions: Sequence[Tensor]) -> Gradients:
        """Apply the pullback to each direction, and follow it through its kernels."""

        def one(rows: Sequence[Tensor] | None) -> Gradients:
            follower = _Follower(rows or ())
            with follower.active():
                found = pullback(rows)
            self.is_known &= follower.is_known and not follower.has_lost()
            return found

        return super().each(one, directions)


class _Follower:
    """Follows tensors through the operations that this thread adds to a graph, and replaces elementwise ones."""

    def __init__(self, followed: Sequence[Tensor]) -> None:
        self._graph: Any = tf.compat.v1.get_default_graph()
        self._followed = {x.name for x in followed}
        self._before, self.is_known = len(self._graph.get_operations()), True
        # What a page has made outside of its functions has the same value in every call.
        captured = getattr(self._graph, "internal_captures", ())
        self._constants = {x.name for x in captured if x.dtype != tf.resource}

    @contextmanager
    def active(self) -> Generator[None]:
        """Follow what this thread adds."""
        op_callbacks.add_op_callback(self._replacements)
        try:
            yield
        finally:
            op_callbacks.remove_op_callback(self._replacements)

    def has_lost(self) -> bool:
        """Return whether an operation was added unseen: TensorFlow reports some functions of graphs to nobody."""
        return any(
            not self._is_followed(*op.outputs)
            for op in self._graph.get_operations()[self._before :]
            if self._is_followed(*op.inputs) and op.type not in OF_SHAPES and op.outputs
        )

    def _is_followed(self, *tensors: Tensor) -> bool:
        return any(x.name in self._followed for x in tensors)

    def _replacements(
        self, kernel: str, inputs: Sequence[Tensor], attrs: Any, outputs: Sequence[Tensor], **of: Any
    ) -> list[Tensor] | None:
        """Return what takes the place of the outputs of an operation, ``None`` if nothing does."""
        operands = [x for x in inputs if x.name in self._followed]
        if of["graph"] is not self._graph or not operands or not outputs or kernel in OF_SHAPES:
            return None
        self._followed.update(y.name for y in outputs)
        if kernel in ELEMENTWISE and all(x.dtype == outputs[0].dtype != tf.variant for x in operands):
            return [self._sum(operands, outputs[0])]
        places = numbers_of(kernel, len(inputs))
        others = [x for i, x in enumerate(inputs) if places is None or i not in places]
        self.is_known &= places is not None and not any(x.name in self._followed or self._varies(x) for x in others)
        return None

    def _sum(self, operands: Sequence[Tensor], like: Tensor) -> Tensor:
        """Return the sum of operands, with the shape of a result."""
        total = tf.zeros_like(like)
        for x in operands:
            total = tf.raw_ops.AddV2(x=total, y=x)
            self._followed.add(total.name)
        return total

    def _varies(self, tensor: Tensor) -> bool:
        """Return whether a tensor may have other values at another point of the same shapes."""
        seen, waiting = set[str](), [tensor]
        while waiting:
            x = waiting.pop()
            if x.name in seen or x.name in self._constants or x.op.type in OF_SHAPES:
                continue
            seen.add(x.name)
            if not x.op.inputs and x.op.type != "Const":
                return True
            waiting += x.op.inputs
        self._constants |= seen
        return False
