"""A change of the cluster: its form, a preview of what it changes, and its execution.

I/O: none of its own.

A change is asked for as a question is: by name, with parameters as texts. Its preview changes nothing. What is
performed is decided anew, so that it may differ from a preview that is old.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from stratalog.clients.console.asker import Asker
from stratalog.clients.console.question import REQUIRED, Parameter
from stratalog.storage.errors import InvalidRequestError


@dataclass(frozen=True, slots=True)
class PreviewLine:
    """One thing that changes; an empty text: it is not there before, or after."""

    what: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Preview:
    """What would change. `warnings` are for the reader; `left_out` counts lines beyond the bound of one page."""

    lines: list[PreviewLine]
    warnings: list[str] = field(default_factory=list)
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class ClusterChange:
    """One change.

    name           as in its address, `/change/NAME`
    title          of its page, an imperative
    doc            what it does, one sentence
    parameters     name -> parameter
    preview        gets the asker and the parameters; what would change. Raises errors of the tree
    perform        the same; a sentence on what was done
    page           the address of the page that shows the result
    is_final       it cannot be undone
    long_texts     parameters whose texts have several lines
    secrets        parameters whose texts are not shown
    """

    name: str
    title: str
    doc: str
    parameters: Mapping[str, Parameter]
    preview: Callable[..., Preview]
    perform: Callable[..., str]
    page: Callable[[Mapping[str, object]], str]
    is_final: bool = False
    long_texts: frozenset[str] = frozenset()
    secrets: frozenset[str] = frozenset()

    def values(self, given: Mapping[str, str]) -> dict[str, object]:
        """The parameters' values. InvalidRequestError for one that is wrong or missing."""
        for name in given:
            if name not in self.parameters:
                raise InvalidRequestError(f"{self.name} has no parameter {name!r}")
        for name, each in self.parameters.items():
            if each.default is REQUIRED and not given.get(name):
                raise InvalidRequestError(f"{name} is missing: {each.doc}")
        return {name: each.value(name, given.get(name)) for name, each in self.parameters.items()}

    def is_complete(self, given: Mapping[str, str]) -> bool:
        """Whether every parameter without a default is given."""
        return all(given.get(name) for name, each in self.parameters.items() if each.default is REQUIRED)

    def previewed(self, asker: Asker, given: Mapping[str, str]) -> Preview:
        """What would change."""
        return self.preview(asker, **self.values(given))

    def performed(self, asker: Asker, given: Mapping[str, str]) -> str:
        """Make the change; a sentence on what was done."""
        return self.perform(asker, **self.values(given))
