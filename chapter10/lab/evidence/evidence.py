"""What was called in a run, and what came back: the list from which every picture of it is drawn.

A `Scene` is the observer that keeps what it sees. All pictures are drawn from its list, so that none of them can
show something that did not happen. `page` makes pages of it, `files` keeps them.

Source: the chapter's sections on its experiments and reports (claims C10-274, C10-277 to C10-282).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from chapter10.canonical import CodedError, canonical
from chapter10.catalog import Tool
from chapter10.experiments import Observer, refusal_of
from chapter10.jobs import STATES
from chapter10.lab.console.textio import Event

__all__ = ["Group", "Scene"]

_MAX_SHOWN: Final = 64
"""Characters of one value in a picture; a longer one is shown as `{...}`."""
_MAX_ITEMS: Final = 4
"""Items of a list in a picture; a longer one is shown by its length."""


class Scene(Observer):
    """The calls of one experiment in the order in which they were made, for its pictures.

    `parts`: `(title, events)`, one picture each; without `begin` there is one part without a title.
    `transitions`: changes of state as `(before, after, why)`, such as `follow` finds in the event log of a job.
    `now`: the logical time of the last call; None in a part without time, which numbers its steps.
    """

    whose_states = "作业走过的状态变化 / the changes of state that the jobs went through"
    """The title of the picture of `transitions`."""

    def __init__(self) -> None:
        self.parts: list[tuple[str, list[Event]]] = [("", [])]
        self.transitions: list[tuple[str, str, str]] = []
        self.now: int | float | None = None

    def begin(self, title: str) -> None:
        """Start another part, in which time starts anew."""
        if not self.parts[-1][1]:
            self.parts.pop()
        self.parts.append((title, []))
        self.now = None

    def at(self, now: int | float) -> None:
        """Move the time of the scene; a call with `now` moves it by itself."""
        self.now = now

    def of(self, actor: str, thing: Any) -> Any:
        """Return something whose verbs are those of `thing`, each call of which is noted as done by `actor`."""
        return _Watched(self, actor, thing)

    def call(self, actor: str, verb: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call `verb`, note it as done by `actor`, and return the answer.

        An option `now` moves the time of the scene. A refusal is noted and raised again.
        """
        self.now = options.get("now", self.now)
        shown = [_argument(value) for value in arguments]
        shown += [f"{name}={_argument(value)}" for name, value in options.items() if name != "now"]
        what = f"{verb.__name__}({', '.join(shown)})"
        try:
            answer = verb(*arguments, **options)
        except CodedError as refused:
            self.note(actor, what, f"refused: {refused.code}")
            raise
        self.note(actor, what, _brief(answer))
        return answer

    def refusal(self, actor: str, verb: Callable[..., Any], *arguments: Any, **options: Any) -> str | None:
        """Make a call as `call` does and return the code with which it is refused; None if it is not."""
        return refusal_of(self.call, actor, verb, *arguments, **options)

    def note(self, actor: str, what: str, detail: str = "") -> None:
        """Note what happened outside a call."""
        events = self.parts[-1][1]
        events.append(Event(len(events) + 1 if self.now is None else self.now, actor, what, detail))

    def follow(self, job_events: Sequence[Mapping[str, Any]]) -> None:
        """Note the changes of state in the event log of one job, its first event included."""
        before = ""
        for event in job_events:
            kind, error = event["kind"], event["detail"].get("error")
            after = kind if kind in STATES else before  # progress keeps the state
            self.transitions.append((before, after, f"{kind}, {error}" if error else kind))
            before = after


class _Watched:
    """A thing in the hands of one actor."""

    def __init__(self, scene: Scene, actor: str, thing: Any) -> None:
        self._scene, self._actor, self._thing = scene, actor, thing

    def __getattr__(self, name: str) -> Any:
        return partial(self._scene.call, self._actor, getattr(self._thing, name))


@dataclass(frozen=True, slots=True)
class Group:
    """One experiment and the words that its page has for it.

    `run(scene)` makes the experiment and returns its figures, a JSON object. `title`: in both languages.
    `target`: whom the actors of its pictures talk to. `text`: what it shows, in both languages; `{name}`
    stands for the figure of that name. `tables`: the figures that are lists of objects with the same
    members, each shown as a table of its own.
    """

    run: Callable[[Scene], dict[str, Any]]
    title: str
    target: str
    text: str
    tables: tuple[str, ...] = ()


def _argument(value: object) -> str:
    """Return an argument in few characters, as it could stand in code where it is short."""
    if isinstance(value, AbstractSet):
        return f"{{{len(value)} permissions}}" if value else "{}"
    if isinstance(value, list):
        return f"[{len(value)} items]"
    if isinstance(value, Mapping) and "name" in value:
        return _brief_mapping(value)
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else "{...}"


def _brief(value: object) -> str:
    """Return an answer in few characters, by what a reader wants to know of it."""
    if isinstance(value, str):
        return value
    if isinstance(value, Tool):
        return f"{value.name} v{value.version}"
    if isinstance(value, Mapping):
        return _brief_mapping(value)
    if isinstance(value, list):
        if len(value) > _MAX_ITEMS:
            return f"[{len(value)} items]"
        return "[" + ", ".join(_brief(item) for item in value) + "]"
    return repr(value)


def _brief_mapping(value: Mapping[str, Any]) -> str:
    if "score" in value:
        return f"{value['name']} ({value['score']})"
    if "name" in value:
        return f"{value['name']} v{value['version']}"
    if "state" in value:
        error = f", {value['error']}" if value["error"] else ""
        return f"{value['state']}, attempt {value['attempt']}, {value['done']}/{value['total']}{error}"
    if "seq" in value:
        return f"{value['seq']} {value['kind']}"
    if "artifact_id" in value:
        return f"{value['artifact_id']}, sha256 {value['sha256'][:8]}"
    text = canonical(value)
    return text if len(text) <= _MAX_SHOWN else "{...}"
