"""Makes templates from requests that the general path has answered."""

import logging
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

from app.autodiff.derived import origin
from app.autodiff.evaluation import Evaluation
from app.execution.engine import Engine
from app.fast_path.cache import TemplateCache
from app.fast_path.candidates import Candidate, NotCacheable, template_of
from app.fast_path.shared_calls import SharedCall
from app.graphs.document import PREFIX
from ops import Op, ParameterSet

logger = logging.getLogger("pullback")


class TemplateMaker:
    """Makes the templates of a process."""

    def __init__(self, engine: Engine, cache: TemplateCache) -> None:
        """Keep the templates in ``cache``."""
        self._graphs, self._sets, self._cache = engine.graphs, engine.sets, cache
        self._calls = WeakValueDictionary[Hashable, SharedCall]()

    def store(self, candidate: Candidate) -> None:
        """Make a template from a request that the general path has answered, if that is possible."""
        head = candidate.head
        if candidate.exchange is None:
            # It was refused. Another one may be answered.
            self._cache.retry_later(candidate.likeness)
            return
        try:
            template = template_of(candidate, self.call_of)
        except NotCacheable:
            head.failures += 1
        except Exception:
            logger.exception("the fast path cannot make a template, and leaves such requests to the general path")
            head.failures += 1
        else:
            head.failures = 0
            self._cache.drop_gone()
            self._cache.store(head, candidate.body, template)

    def call_of(self, evaluation: Evaluation[Any]) -> SharedCall:
        """Return the call of an evaluation, the same for all that may share one."""
        point, packing = evaluation.point, evaluation.packed[0]
        fixed, parameters = point.spec.fixed, point.spec.parameters
        numbers = [leaf if fixed.start <= i < fixed.stop else None for i, leaf in enumerate(evaluation.leaves)]
        # Bytes, because 0.0 == -0.0 although the two give different results.
        digest = parameters.digest if point.spec.held else ""
        key = packing, digest, *(number.tobytes() for number in point.spec.numbers)
        call = self._calls.get(key)
        if call is None:
            dtypes = [leaf.dtype for leaf, number in zip(evaluation.leaves, numbers, strict=True) if number is None]
            kept = self._whether_kept(point.op, parameters)
            call = self._calls[key] = SharedCall(packing, numbers, dtypes, point.op.owner, *kept)
        return call

    def _whether_kept(self, op: Op, values: ParameterSet) -> tuple[Callable[[], bool], Callable[[], bool]] | tuple[()]:
        """Return the functions that say whether a posted graph, or put parameters, are kept, and are gone.

        There are none for other ops with the values of their page.
        """
        base, graphs, sets = origin(op)[0], self._graphs, self._sets
        if values is not op.own_parameters:
            return partial(sets.is_kept, op, values), lambda: not sets.has(op, values)
        if base.owner != PREFIX:
            return ()
        return (lambda: graphs.has(base) and graphs.is_kept(base.name)), (lambda: not graphs.has(base))
