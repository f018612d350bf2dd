"""Fields of a request that exclude each other."""

from app.errors import wrong
from app.requests.models import HessianRequest, JacobianRequest, OperationRequest, PointsRequest


def check_exclusions(request: OperationRequest) -> None:
    """Raise ``Unprocessable`` for fields that exclude others, or need them."""
    if isinstance(request, PointsRequest) and request.partial and not request.points:
        message = "only some of many points can fail"
        raise wrong(("partial",), message, expected='"points": true with it', got="partial alone")
    if not isinstance(request, JacobianRequest | HessianRequest):
        return
    if request.sparse is None and request.sparsity is not None:
        raise wrong(("sparsity",), "a sparsity without sparse", expected="sparse: coo or csr", got="none")
    if request.sparse is not None and request.digits:
        message = "the digits of a sparse matrix are not estimated"
        raise wrong(("digits",), message, expected="sparse or digits", got="both")
    if request.sparse is not None and request.points:
        message = "each point has its own request for a sparse matrix"
        raise wrong(("points",), message, expected="sparse or points", got="both")
    if request.sparse is not None and isinstance(request, HessianRequest) and request.diagonal:
        raise wrong(("diagonal",), "a diagonal is not sparse", expected="sparse or diagonal", got="both")
