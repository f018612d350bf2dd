"""``tf.compat.v1``, as far as it is used here: graphs, sessions and their protocol buffers."""

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from tensorflow import Graph, Tensor
from tensorflow import gradients as gradients
from tensorflow._aliases import DTypeSpec, Fetch, StaticShape, TensorLike
from tensorflow.core.protobuf.config_pb2 import CallableOptions
from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig

class NameAttrList:
    def __init__(self, *, name: str | bytes = ..., attr: Mapping[str, Any] = ...) -> None: ...
    name: str

class OptimizerOptions:
    def __init__(self, *, opt_level: int = ..., global_jit_level: int = ...) -> None: ...
    opt_level: int
    global_jit_level: int

class GraphOptions:
    def __init__(self, *, optimizer_options: OptimizerOptions = ..., rewrite_options: RewriterConfig = ...) -> None: ...
    optimizer_options: OptimizerOptions
    rewrite_options: RewriterConfig

class GPUOptions:
    def __init__(self, *, allow_growth: bool = ..., per_process_gpu_memory_fraction: float = ...) -> None: ...
    allow_growth: bool
    per_process_gpu_memory_fraction: float

class ConfigProto:
    def __init__(
        self,
        *,
        allow_soft_placement: bool = ...,
        log_device_placement: bool = ...,
        inter_op_parallelism_threads: int = ...,
        intra_op_parallelism_threads: int = ...,
        operation_timeout_in_ms: int = ...,
        gpu_options: GPUOptions = ...,
        graph_options: GraphOptions = ...,
    ) -> None: ...
    allow_soft_placement: bool
    log_device_placement: bool
    inter_op_parallelism_threads: int
    intra_op_parallelism_threads: int
    operation_timeout_in_ms: int
    gpu_options: GPUOptions
    graph_options: GraphOptions

class RunOptions:
    def __init__(self, *, timeout_in_ms: int = ..., inter_op_thread_pool: int = ...) -> None: ...
    timeout_in_ms: int
    inter_op_thread_pool: int

class Session:
    def __init__(self, target: str = "", graph: Graph | None = None, config: ConfigProto | None = None) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        exec_type: type[BaseException] | None,
        exec_value: BaseException | None,
        exec_tb: TracebackType | None,
    ) -> None: ...
    @property
    def graph(self) -> Graph: ...
    def close(self) -> None: ...
    def run(
        self,
        fetches: Any,
        feed_dict: Mapping[Any, Any] | None = None,
        options: RunOptions | None = None,
        run_metadata: Any = None,
    ) -> Any: ...
    def make_callable(
        self, fetches: Fetch | Sequence[Fetch], feed_list: Sequence[Tensor] | None = None, accept_options: bool = False
    ) -> Callable[..., Any]: ...
    def _make_callable_from_options(self, callable_options: CallableOptions) -> Callable[..., list[Any]]: ...

def executing_eagerly_outside_functions() -> bool: ...
def get_default_graph() -> Graph: ...
def placeholder(dtype: DTypeSpec, shape: StaticShape = None, name: str | None = None) -> Tensor: ...
def placeholder_with_default(input: TensorLike, shape: StaticShape, name: str | None = None) -> Tensor: ...
def control_flow_v2_enabled() -> bool: ...
def resource_variables_enabled() -> bool: ...
def enable_v2_behavior() -> None: ...
def GraphDef(*, library: Any = None, versions: Any = None) -> Any: ...
