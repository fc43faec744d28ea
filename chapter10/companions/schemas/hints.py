"""The hints of a Python function as a JSON Schema, and the JSON that fits it as the values that the hints promise.

    str int float bool None      the type of JSON; 3.0 reaches an `int` as 3
    Any                          everything
    list[X] tuple[X, ...]        an array of X
    tuple[X, Y]                  an array of exactly these
    dict[str, X]                 an object whose members are X
    Literal, Enum                the listed values; an Enum gets its member
    Optional[X] Union X | Y      any of them; the first that fits is the one that is meant
    TypedDict, dataclass         an object with these names and no other; a dataclass gets its instance
    Annotated[X, "text", {...}]  the text describes it, the object adds keywords of JSON Schema

What has a default is not required; the default is shown where it is JSON and fits, and Python fills it in. What
JSON cannot express (a set, bytes, a type that holds itself, `*args`, no hint at all) is refused by the argument's
name when the function is looked at, and never taken for `Any`.

The docstring gives the description: all of it but the section `Args:` (or `Parameters` with a line under it, or lines
`:param name:`), whose texts describe the arguments. A text for an argument that does not exist is refused, because a
model would believe it.

Source: the document on the tool registry (claims T6-007, T6-022): one place for what a model sees and what runs.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Annotated, Any, Final, Literal, NamedTuple, NoReturn, TypeAlias, Union

from chapter10.canonical import CanonicalError, CodedError, canonical
from chapter10.companions.schemas.schema import SchemaError, compile_schema

__all__ = ["HintError", "TypedFunction", "typed_function"]

_Read: TypeAlias = Callable[[Any], Any]

_PLAIN: Final = {str: "string", float: "number", bool: "boolean", type(None): "null"}


class HintError(CodedError, ValueError):
    """Raised for a function that cannot be described; the code is `bad_hint`.

    `argument` names the argument, with the field of an object behind a point (`order.lines`), or is "" for the
    function as a whole; `reason` says why in a few words.
    """

    argument: str
    reason: str

    def __init__(self, argument: str, reason: str) -> None:
        super().__init__("bad_hint")
        self.argument = argument
        self.reason = reason


class TypedFunction(NamedTuple):
    """What `typed_function` found: what a model reads, the schema, and a handler that takes the JSON it lets in."""

    name: str
    description: str
    parameters: dict[str, Any]
    handler: Callable[..., Any]


class _Form(NamedTuple):
    """The schema of a hint, and what makes the promised value of fitting JSON; None where the JSON is that value."""

    schema: dict[str, Any]
    read: _Read | None = None


def typed_function(function: Callable[..., Any], *, leave_out: str | None = None) -> TypedFunction:
    """Return name, description, schema and handler of a function (or coroutine function) with typed arguments.

    `leave_out`: a parameter that is no argument of a model. The handler has the function's own signature and
    returns what the function returns. Raises `HintError`.
    """
    if not inspect.isroutine(function):
        raise HintError("", "not a function")
    try:
        signature = inspect.signature(function)
    except ValueError:
        raise HintError("", "its signature cannot be read") from None
    described, texts = _docstring(inspect.getdoc(function) or "")
    form = _object(_parameters(signature, leave_out), _hints(function), "", ())
    for name in texts:
        if name not in form.schema["properties"] and name != leave_out:
            raise HintError(name, "described in the docstring, and not an argument")
    for name, text in texts.items():
        if name != leave_out:
            form.schema["properties"][name].setdefault("description", text)
    try:
        compile_schema(form.schema)
    except SchemaError as error:  # words of an `Annotated` that are no keywords
        argument = [*error.path.split("/"), "", "", ""][2]
        raise HintError(argument, f"{error.keyword}: {error.reason}" if error.keyword else error.reason) from None
    return TypedFunction(function.__name__, described, form.schema, _handler(function, form.read))


def _handler(function: Callable[..., Any], read: _Read | None) -> Callable[..., Any]:
    if read is None:
        return function
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def later(**arguments: Any) -> Any:
            return await function(**read(arguments))

        return later

    @functools.wraps(function)
    def now(**arguments: Any) -> Any:
        return function(**read(arguments))

    return now


def _parameters(signature: inspect.Signature, leave_out: str | None) -> Iterator[tuple[str, Any]]:
    """Yield name and default of each parameter that is given by name."""
    for name, one in signature.parameters.items():
        if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            raise HintError(name, "stands for any number of arguments")
        if one.kind is one.POSITIONAL_ONLY:
            raise HintError(name, "cannot be given by name")
        if name != leave_out:
            yield name, one.default


def _hints(owner: Any) -> dict[str, Any]:
    """Return the hints of a function or class; each is read by itself, so that the one that fails has a name."""
    if isinstance(owner, type):
        sources = [
            (vars(base).get("__annotations__", {}), vars(_module_of(base)) | {base.__name__: base})
            for base in reversed(owner.__mro__)
        ]
    else:
        inner = inspect.unwrap(owner)
        sources = [(getattr(inner, "__annotations__", {}), getattr(inner, "__globals__", {}))]
    found = {}
    for hints, names in sources:
        for name, hint in hints.items():
            try:
                holder = types.SimpleNamespace(__annotations__={name: hint})
                found[name] = typing.get_type_hints(holder, names, include_extras=True)[name]
            except (NameError, AttributeError, SyntaxError, TypeError) as error:
                if name != "return":
                    found[name] = error
    return found


def _module_of(kind: type) -> types.ModuleType:
    return inspect.getmodule(kind) or types.ModuleType("none")


def _object(members: Any, hints: dict[str, Any], place: str, inside: tuple[Any, ...]) -> _Form:
    """The form of an object: the arguments of a function, or the fields of a class."""
    properties: dict[str, Any] = {}
    required = []
    reads: dict[str, _Read] = {}
    for name, default in members:
        here = f"{place}.{name}" if place else name
        if name not in hints:
            raise HintError(here, "has no type hint")
        form = _form(hints[name], here, inside)
        properties[name] = form.schema
        if form.read is not None:
            reads[name] = form.read
        if default is inspect.Parameter.empty:
            required.append(name)
        else:
            _show_default(form.schema, default)
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}

    def read(value: dict[str, Any]) -> dict[str, Any]:
        return {key: reads[key](item) if key in reads else item for key, item in value.items()}

    return _Form(schema, read if reads else None)


def _show_default(schema: dict[str, Any], default: Any) -> None:
    """Put a default into its schema, if it is JSON and fits; else the argument is only not required."""
    plain = default.value if isinstance(default, Enum) else list(default) if type(default) is tuple else default
    try:
        canonical(plain)
        fits = not compile_schema(schema).validate(plain)
    except (CanonicalError, SchemaError):
        return
    if fits:
        schema["default"] = plain


def _form(hint: Any, place: str, inside: tuple[Any, ...]) -> _Form:
    """The form of one hint. `inside` are the classes around it. Raises `HintError`."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint is list or hint is dict:
        origin = hint
    if hint is tuple:
        origin, inner = tuple, (Any, ...)
    if isinstance(hint, Exception):
        _refuse(place, "its hint names what is not there (a class inside a function, perhaps)")
    if hint is Any:
        return _Form({})
    if hint is int:
        return _Form({"type": "integer"}, int)
    if isinstance(hint, type) and hint in _PLAIN:
        return _Form({"type": _PLAIN[hint]})
    if hint is None:
        return _Form({"type": "null"})
    if origin is Annotated:
        return _annotated(inner, place, inside)
    if origin in (typing.Required, typing.NotRequired):
        return _form(inner[0], place, inside)
    if origin is Literal:
        return _values(inner, None, place)
    if origin is Union or origin is types.UnionType:
        return _union([_form(one, place, inside) for one in inner])
    if origin is list:
        return _array(_form(inner[0], place, inside) if inner else _Form({}), None)
    if origin is tuple:
        return _tuple(inner, place, inside)
    if origin is dict:
        if inner and inner[0] is not str:
            _refuse(place, "keys of JSON are texts")
        return _members(_form(inner[1], place, inside) if inner else _Form({}))
    if isinstance(hint, type) and origin is None:
        return _class(hint, place, inside)
    _refuse(place, f"JSON cannot express {_shown(hint)}")


def _class(hint: type, place: str, inside: tuple[Any, ...]) -> _Form:
    if issubclass(hint, Enum):
        return _values([member.value for member in hint], hint, place)
    if hint in inside:
        _refuse(place, f"{hint.__name__} holds itself")
    inside = (*inside, hint)
    if typing.is_typeddict(hint):
        hints = _hints(hint)
        return _object([(name, _needed(hint, name, hints[name])) for name in hints], hints, place, inside)
    if dataclasses.is_dataclass(hint):
        form = _object(_parameters(inspect.signature(hint), None), _hints(hint), place, inside)
        read = form.read
        return _Form(form.schema, lambda value: hint(**(read(value) if read else value)))
    _refuse(place, f"JSON cannot express {_shown(hint)}")


def _needed(hint: Any, name: str, of: Any) -> Any:
    """Say like a default whether a TypedDict needs a name; a hint in text hides it from `__required_keys__`."""
    origin = typing.get_origin(of)
    needed = name in hint.__required_keys__ if origin not in (typing.Required, typing.NotRequired) else None
    return inspect.Parameter.empty if needed or origin is typing.Required else _NOTHING


_NOTHING: Final = object()


def _annotated(inner: tuple[Any, ...], place: str, inside: tuple[Any, ...]) -> _Form:
    form = _form(inner[0], place, inside)
    for more in inner[1:]:
        if type(more) is str:
            form.schema["description"] = more
        elif type(more) is dict and not set(more) & set(form.schema):
            form.schema.update(more)
        else:
            _refuse(place, f"Annotated with {_shown(more)}, neither a text nor keywords that are not there yet")
    return form


def _values(values: Any, kind: type | None, place: str) -> _Form:
    plain = [value.value if isinstance(value, Enum) else value for value in values]
    if not set(map(type, plain)) <= {str, int, float, bool, type(None)} or (kind is None and plain != list(values)):
        _refuse(place, "a value that is no text, number, truth value or None")
    return _Form({"enum": plain}, kind)


def _union(forms: list[_Form]) -> _Form:
    schema = {"anyOf": [form.schema for form in forms]}
    if all(form.read is None for form in forms):
        return _Form(schema)
    tries = []
    for form in forms:
        tries.append((form, _validator(form.schema)))

    def read(value: Any) -> Any:
        form = next(form for form, validator in tries if not validator().validate(value))
        return form.read(value) if form.read else value

    return _Form(schema, read)


def _validator(schema: dict[str, Any]) -> Callable[[], Any]:
    """Compile a schema when it is first asked, by when every error in it has been reported by its argument."""
    return functools.cache(lambda: compile_schema(schema))


def _array(item: _Form, kind: type | None) -> _Form:
    read = item.read
    if read is None:
        return _Form({"type": "array", "items": item.schema}, kind)
    return _Form({"type": "array", "items": item.schema}, lambda value: (kind or list)(map(read, value)))


def _tuple(inner: tuple[Any, ...], place: str, inside: tuple[Any, ...]) -> _Form:
    if len(inner) == 2 and inner[1] is ...:
        return _array(_form(inner[0], place, inside), tuple)
    forms = [_form(one, place, inside) for one in inner]
    schema: dict[str, Any] = {"type": "array", "minItems": len(forms), "maxItems": len(forms)}
    if forms:
        schema["prefixItems"] = [form.schema for form in forms]
    return _Form(
        schema,
        lambda value: tuple(form.read(item) if form.read else item for form, item in zip(forms, value, strict=True)),
    )


def _members(item: _Form) -> _Form:
    schema: dict[str, Any] = {"type": "object", "additionalProperties": item.schema}
    read = item.read
    return _Form(schema, (lambda value: {key: read(one) for key, one in value.items()}) if read else None)


_PARAM: Final = re.compile(r":param\s+(?:[^:]*\s)?\*{0,2}(\w+):\s*(.*)")
_PARAMETERS: Final = ("Parameters", "Other Parameters")
_RULE: Final = re.compile(r"-{3,}\s*")
_ENTRY: Final = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)")


def _docstring(text: str) -> tuple[str, dict[str, str]]:
    """Split a cleaned docstring into the description and a text for each argument."""
    kept: list[str] = []
    lines, texts = _underlined(text.splitlines())
    into = kept  # where a line that goes on belongs
    section: int | None = None  # the indentation of the entries of `Args:`, 0 before the first
    for line in lines:
        indent = len(line) - len(line.lstrip())
        word = line.strip()
        if word in ("Args:", "Arguments:", "Parameters:") and indent == 0:
            section = 0
            continue
        if section is not None and word and indent == 0:
            section, into = None, kept
        if section is not None:
            entry = _ENTRY.match(word) if word and section in (0, indent) else None
            if entry:
                section, into = indent, texts.setdefault(entry[1], [])
                word = entry[2]
            if into is not kept:
                into.append(word)
            continue
        if (param := _PARAM.match(word)) is not None:
            into = texts.setdefault(param[1], [])
            into.append(param[2])
        elif into is not kept and indent and word:
            into.append(word)
        else:
            into = kept
            kept.append(line)
    return "\n".join(kept).strip(), {name: " ".join(filter(None, lines)) for name, lines in texts.items()}


def _underlined(lines: list[str]) -> tuple[list[str], dict[str, list[str]]]:
    """Take out the section `Parameters` that has a line under it, and return the rest and its texts by argument."""
    kept: list[str] = []
    texts: dict[str, list[str]] = {}
    into: list[list[str]] | None = None  # the texts that a line goes on, while it is in the section
    for place, line in enumerate(lines):
        if place + 1 < len(lines) and _RULE.fullmatch(lines[place + 1]):
            into = [] if line.strip() in _PARAMETERS else None
        if into is None:
            kept.append(line)
        elif line.strip() and not line.startswith(" ") and not _RULE.fullmatch(line):
            names = line.partition(":")[0].split(",") if line.strip() not in _PARAMETERS else []
            into = [texts.setdefault(name.strip().lstrip("*"), []) for name in names]
        elif line.startswith(" "):
            for lines_of_one in into:
                lines_of_one.append(line.strip())
    return kept, texts


def _shown(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")[:80]


def _refuse(place: str, reason: str) -> NoReturn:
    raise HintError(place, reason)
