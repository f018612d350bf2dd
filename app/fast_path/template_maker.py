"""Makes templates from requests that the general path has answered."""

import logging
from collections.abc import Hashable
from typing import Any
from weakref import WeakValueDictionary

from app.autodiff.evaluation import Evaluation
from app.execution.engine import Engine
from app.fast_path.candidates import Candidate, NotCacheable, template_of
from app.fast_path.prefixes import FAILURES, TemplateCache
from app.fast_path.shared_calls import SharedCall

logger = logging.getLogger("pullback")


class TemplateMaker:
    """Makes the templates of a process."""

    def __init__(self, engine: Engine, cache: TemplateCache) -> None:
        """Keep the templates in ``cache``."""
        self._batches, self._deadline_s, self._cache = engine.batches, engine.deadline_s, cache
        self._calls = WeakValueDictionary[Hashable, SharedCall]()

    def store(self, candidate: Candidate) -> None:
        """Make a template from a request that the general path has answered, if that is possible."""
        prefix = self._cache.find(candidate.prefix)
        if prefix is None:
            return
        if candidate.exchange is None:
            # It was refused. Another one may be answered.
            self._cache.retry_later(candidate.likeness)
            return
        try:
            template = template_of(candidate, self._deadline_s, self._call_of)
        except NotCacheable as reason:
            prefix.failures = FAILURES if reason.is_lasting and candidate.names_op else prefix.failures + 1
        except Exception:
            logger.exception("the fast path cannot make a template, and leaves such requests to the general path")
            prefix.failures += 1
        else:
            runs_inline = self._runs_inline(template.call, template.size)
            if runs_inline:
                prefix.failures = 0
                self._cache.store(prefix, candidate.body, template)
            elif runs_inline is None:
                self._cache.retry_later(candidate.likeness)
            else:
                prefix.failures += 1

    def _call_of(self, evaluation: Evaluation[Any]) -> SharedCall:
        """Return the call of an evaluation, the same for all that may share one."""
        call = self._calls.get(evaluation.batch_key)
        if call is None:
            packing = evaluation.packed[0]
            same = [leaf if unit is None else None for leaf, unit in zip(evaluation.leaves, packing.units, strict=True)]
            call = SharedCall(packing, same, evaluation.leaves[0].dtype)
            self._calls[evaluation.batch_key] = call
        return call

    def _runs_inline(self, call: SharedCall, size: int) -> bool | None:
        """Return whether a call of ``size`` numbers or more is known to run inline; ``None`` if none has run."""
        packing, least = call.packing, call.packing.length_for(size)
        known = [self._batches.runs_inline(packing, length) for length in packing.lengths if length >= least]
        return True if True in known else False if False in known else None
