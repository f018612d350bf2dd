"""Responses, whatever received them."""

import email.utils
import time
from collections.abc import Mapping
from typing import NamedTuple

from pullback.safetensors import Buffer


class Response(NamedTuple):
    """A complete response; the names of the headers are in lower case, and those that nothing reads may lack."""

    status: int
    headers: Mapping[str, str]
    content: Buffer

    @property
    def media_type(self) -> str:
        """The media type, without parameters; empty if there is none."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


def retry_after(response: Response) -> float | None:
    """Return the seconds of ``Retry-After``, which may be a date; ``None`` if there are none."""
    value = response.headers.get("retry-after", "")
    if value.isdecimal():
        return float(value)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None
