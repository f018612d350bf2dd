"""The gradients that ``tf.custom_gradient`` registers while a graph is built.

TensorFlow keeps each of them for the life of the process, and with it the graph. A graph that is complete, and never
differentiated again, does not need them.
"""

import tensorflow as tf

# Private, because the public API registers gradients and never removes them.
from tensorflow.python.framework.ops import gradient_registry

PREFIX = "CustomGradient-"
_ATTRIBUTE = "_gradient_op_type"


def forget_gradients(graph: tf.Graph) -> None:
    """Remove the gradients of a complete graph; not those of functions that it calls, which others may call too."""
    for node in graph.as_graph_def().node:
        if _ATTRIBUTE in node.attr and (name := node.attr[_ATTRIBUTE].s.decode()).startswith(PREFIX):
            gradient_registry._registry.pop(name, None)
