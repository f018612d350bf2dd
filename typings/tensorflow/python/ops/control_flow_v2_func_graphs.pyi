"""``tensorflow.python.ops.control_flow_v2_func_graphs``, private: the graphs of loops and branches."""

from tensorflow import Graph, Tensor

class ControlFlowFuncGraph(Graph):
    outer_graph: Graph
    @property
    def captures(self) -> list[tuple[Tensor, Tensor]]: ...

class WhileBodyFuncGraph(ControlFlowFuncGraph): ...
