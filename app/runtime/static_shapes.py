"""Functions of pages that ask for the static shape of a tensor, which is unknown while TensorFlow traces."""

import re

from app.runtime.messages import message_of, text_of
from app.runtime.source_lines import author_line
from ops import OpFault

# What Python and TensorFlow say of a size that is None, and of a shape of unknown rank.
_UNKNOWN = re.compile(r"None|unknown (?:rank|shape|dimension|TensorShape)|fully defined|static|infer (?:argument|num)")
_CURE = "tf.shape(x)[i], functions that take any size, or a size that the slot declares, as in shape=(3,)"


def static_shape_fault(error: BaseException) -> OpFault | None:
    """Return the fault behind an error of a trace, where the op runs eagerly: a size was ``None``; or else ``None``."""
    if _UNKNOWN.search(text_of(error)) is None:
        return None
    message, got = "needs a size that is unknown while TensorFlow traces", f"None ({message_of(error)})"
    return OpFault("x.shape[i]", "a static shape", expected=_CURE, got=got, message=message, where=author_line(error))
