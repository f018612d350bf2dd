"""The part of ``tf.dtypes`` in use."""

from tensorflow import DType as DType
from tensorflow import as_dtype as as_dtype
from tensorflow import bfloat16 as bfloat16
from tensorflow import cast as cast
from tensorflow import complex as complex
from tensorflow import float16 as float16
from tensorflow import float32 as float32
from tensorflow import float64 as float64
from tensorflow import int32 as int32
from tensorflow import int64 as int64
from tensorflow import saturate_cast as saturate_cast
