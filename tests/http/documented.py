"""Answers are as the OpenAPI document says: a hook of the clients that the tests of the service share.

Of each route, status and set of fields, the first answer must have a documented status, and documented fields alone.
"""

import re
from typing import Any

import httpx
from jsonschema import Draft202012Validator

from tests.patience import PATIENCE_S

MAX_BYTES = 1 << 17
JSON = ("application/json", "application/problem+json")


class Documented:
    """The answers of a service, beside its OpenAPI document, which the first answer fetches."""

    def __init__(self) -> None:
        self._document: dict[str, Any] = {}
        self._paths = list[tuple[re.Pattern[str], str]]()
        self._seen = set[tuple[Any, ...]]()

    def check(self, response: httpx.Response) -> None:
        """Raise ``AssertionError`` or ``ValidationError`` for an answer that the document does not describe."""
        media = response.headers.get("content-type", "").partition(";")[0]
        path = response.request.url.path
        if (
            response.request.method == "HEAD"
            or media not in JSON
            or not 0 < int(response.headers.get("content-length", 0)) < MAX_BYTES
        ):
            return
        if not self._document:
            self._fetch(response.request.url)
        template = next((template for pattern, template in self._paths if pattern.fullmatch(path)), None)
        method = response.request.method.lower()
        operation = self._document["paths"].get(template, {}).get(method)
        if template is None or operation is None:
            return  # an unknown path or method, whose error every route may have
        response.read()
        document = response.json()
        kind = template, method, response.status_code, frozenset(document)
        if kind in self._seen:
            return
        self._seen.add(kind)
        answers = operation["responses"]
        found = answers.get(str(response.status_code), answers.get("default"))
        assert found is not None, f"{method} {path}: status {response.status_code} is not documented"
        schema = self._resolved(found)["content"][media]["schema"]
        Draft202012Validator({**schema, "components": self._document["components"]}).validate(document)

    def _fetch(self, url: httpx.URL) -> None:
        self._document = (
            httpx.get(url.join("/openapi.json"), timeout=PATIENCE_S, trust_env=False).raise_for_status().json()
        )
        _close(self._document["components"]["schemas"])
        # Paths without parameters first: they are matched before those with.
        for template in sorted(self._document["paths"], key=lambda template: template.count("{")):
            self._paths.append((re.compile(re.sub(r"\{\w+\}", "[^/]+", template)), template))

    def _resolved(self, part: dict[str, Any]) -> dict[str, Any]:
        if "$ref" not in part:
            return part
        kind, name = part["$ref"].removeprefix("#/components/").split("/")
        return self._document["components"][kind][name]


def _close(tree: Any) -> None:
    """Let the objects of schemas have no other properties than theirs."""
    if isinstance(tree, dict):
        if "properties" in tree and tree.get("type") == "object":
            tree.setdefault("additionalProperties", False)
        for value in tree.values():
            _close(value)
    elif isinstance(tree, list):
        for value in tree:
            _close(value)
