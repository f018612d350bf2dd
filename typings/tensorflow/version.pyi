"""``tf.version``."""

COMPILER_VERSION: str
GIT_VERSION: str
GRAPH_DEF_VERSION: int
VERSION: str
