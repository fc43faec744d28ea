"""A typed function as a tool: what a model sees of it, what reaches it, and what is refused by its name."""

from __future__ import annotations

import asyncio
import enum
import typing
import unittest
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from typing import Annotated, Any, Literal, NotRequired, Optional, Required, TypedDict, Union

from chapter10.companions.schemas.hints import HintError, typed_function
from chapter10.companions.schemas.schema import compile_schema
from chapter10.companions.tools.registry import CallContext, RegistryError, ToolRegistry
from chapter10.tests.support import TOP, run_python


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Odd(enum.Enum):
    PAIR = (1, 2)


class Place(TypedDict):
    city: str
    street: NotRequired[str]


class Wide(Place, total=False):
    code: int
    land: Required[str]


@dataclass
class Line:
    order: str
    count: int = 1
    colour: Colour = Colour.RED
    tags: list[str] = field(default_factory=list)


@dataclass
class Order:
    lines: list[Line]
    at: Place | None = None


@dataclass
class Tree:
    children: list[Tree]


@dataclass
class Secret:
    hidden: InitVar[int]


def call(registry: ToolRegistry, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return asyncio.run(registry.invoke(name, arguments))


def schema_of(hint: Any) -> Any:
    def function(value: Any) -> None:
        """Takes a value."""

    function.__annotations__["value"] = hint
    return typed_function(function).parameters["properties"]["value"]


class Forms(unittest.TestCase):
    """What each hint is in JSON Schema, and which value reaches the function."""

    def test_each_hint_has_its_schema(self) -> None:
        """Plain types, containers, choices and objects, each as a generator of schemas would write it."""
        for hint, schema in (
            (str, {"type": "string"}),
            (int, {"type": "integer"}),
            (float, {"type": "number"}),
            (bool, {"type": "boolean"}),
            (None, {"type": "null"}),
            (Any, {}),
            (list, {"type": "array", "items": {}}),
            (list[int], {"type": "array", "items": {"type": "integer"}}),
            (tuple, {"type": "array", "items": {}}),
            (tuple[str, ...], {"type": "array", "items": {"type": "string"}}),
            (tuple[()], {"type": "array", "minItems": 0, "maxItems": 0}),
            (dict, {"type": "object", "additionalProperties": {}}),
            (dict[str, bool], {"type": "object", "additionalProperties": {"type": "boolean"}}),
            (Literal["a", 1, None], {"enum": ["a", 1, None]}),
            (Colour, {"enum": ["red", "blue"]}),
            (
                Optional[str],  # noqa: UP045
                {"anyOf": [{"type": "string"}, {"type": "null"}]},
            ),
            (
                Union[str, bool],  # noqa: UP007
                {"anyOf": [{"type": "string"}, {"type": "boolean"}]},
            ),
            (
                Annotated[int, "How many.", {"minimum": 1}],
                {"type": "integer", "description": "How many.", "minimum": 1},
            ),
        ):
            with self.subTest(hint=hint):
                self.assertEqual(schema_of(hint), schema)

    def test_objects_have_their_names_and_no_other(self) -> None:
        """Of a TypedDict what is required is told by it, of a dataclass by its defaults."""
        self.assertEqual(schema_of(Place)["required"], ["city"])
        self.assertEqual(sorted(schema_of(Wide)["required"]), ["city", "land"])
        self.assertEqual(set(schema_of(Wide)["properties"]), {"city", "street", "code", "land"})
        line = schema_of(Line)
        self.assertEqual((line["required"], line["additionalProperties"]), (["order"], False))
        self.assertEqual(line["properties"]["count"], {"type": "integer", "default": 1})
        self.assertEqual(line["properties"]["colour"], {"enum": ["red", "blue"], "default": "red"})
        self.assertNotIn("default", line["properties"]["tags"])

    def test_the_function_gets_what_its_hints_promise(self) -> None:
        """Members of an Enum, instances, tuples and whole numbers, at any depth and in any alternative."""
        for hint, given, wanted in (
            (int, 3.0, 3),
            (Colour, "blue", Colour.BLUE),
            (Level, 2, Level.HIGH),
            (tuple[Colour, ...], ["red"], (Colour.RED,)),
            (dict[str, Colour], {"a": "red"}, {"a": Colour.RED}),
            (tuple[Colour, str], ["red", "a"], (Colour.RED, "a")),
            (Colour | None, None, None),
            (str | Level, 1, Level.LOW),
            (Line | Place, {"city": "Ulm"}, {"city": "Ulm"}),
            (Line | Place, {"order": "A"}, Line("A")),
            (Order, {"lines": [{"order": "A", "count": 2.0}]}, Order([Line("A", 2)])),
            (list[str], ["a"], ["a"]),
        ):

            def function(value: Any) -> Any:
                """Give it back."""
                return value

            function.__annotations__["value"] = hint
            found = typed_function(function)
            with self.subTest(hint=hint):
                self.assertEqual(compile_schema(found.parameters).validate({"value": given}), [])
                got = found.handler(value=given)
                self.assertEqual((got, type(got)), (wanted, type(wanted)))

    def test_a_default_is_shown_only_where_it_is_json_and_fits(self) -> None:
        """Any other makes the argument one that may be left out, and nothing more."""

        def function(
            a: int,
            b: int = 2,
            *,
            c: str = None,  # type: ignore[assignment] # noqa: RUF013
            d: Any = Refused,
            e: tuple[int, ...] = (1,),
            f: Colour = Colour.RED,
        ) -> None:
            """Do it."""

        schema = typed_function(function).parameters
        self.assertEqual(schema["required"], ["a"])
        shown = {name: one["default"] for name, one in schema["properties"].items() if "default" in one}
        self.assertEqual(shown, {"b": 2, "e": [1], "f": "red"})


class Refused(unittest.TestCase):
    """What JSON cannot express is named."""

    def assert_refused(self, function: Callable[..., Any], argument: str, reason: str) -> None:
        with self.assertRaises(HintError) as caught:
            typed_function(function)
        self.assertEqual(caught.exception.argument, argument)
        self.assertIn(reason, caught.exception.reason)

    def test_a_hint_that_json_cannot_express_is_refused_by_the_arguments_name(self) -> None:
        """Also deep inside another hint, with the field behind a point."""
        for hint, argument, reason in (
            (set[str], "value", "set"),
            (bytes, "value", "bytes"),
            (complex, "value", "complex"),
            (list[bytes], "value", "bytes"),
            (dict[int, str], "value", "keys of JSON are texts"),
            (Literal[b"a"], "value", "a value that is no text"),
            (Literal[Colour.RED], "value", "a value that is no text"),
            (Odd, "value", "a value that is no text"),
            (Callable[[], int], "value", "Callable"),
            (Tree, "value.children", "Tree holds itself"),
            (Secret, "value.hidden", "InitVar"),
            (typing.TypeVar("T"), "value", "JSON cannot express"),
            (Annotated[int, 5], "value", "neither a text nor keywords"),
            (Annotated[int, {"type": "string"}], "value", "neither a text nor keywords"),
            (Annotated[int, {"least": 1}], "value", "least: not checked here"),
            ("Nowhere", "value", "not there"),
        ):

            def function(value: Any) -> None:
                """Take it."""

            function.__annotations__["value"] = hint
            with self.subTest(hint=hint):
                self.assert_refused(function, argument, reason)

    def test_a_parameter_that_no_argument_can_fill_is_refused(self) -> None:
        """No hint, any number of them, or by place only."""

        def bare(a: int, b) -> None:  # type: ignore[no-untyped-def]
            """Do it."""

        def many(*a: int) -> None:
            """Do it."""

        def open_names(**a: int) -> None:
            """Do it."""

        def by_place(a: int, /) -> None:
            """Do it."""

        self.assert_refused(bare, "b", "has no type hint")
        self.assert_refused(many, "a", "any number")
        self.assert_refused(open_names, "a", "any number")
        self.assert_refused(by_place, "a", "by name")
        self.assert_refused(Colour, "", "not a function")


class Docstrings(unittest.TestCase):
    """Where the texts come from."""

    def test_the_docstring_describes_the_tool_and_its_arguments(self) -> None:
        """A section `Args:` or an underlined one, and lines `:param x:`, go to the arguments; the rest describes."""

        def google(city: str, days: int = 1) -> str:
            """Tell the weather.

            Of today and later.

            Args:
                city: A name,
                    as on a map.
                days (int): How many.

            Returns:
                A text.
            """
            return city

        def fields(city: str, days: int = 1) -> str:
            """Tell the weather.

            :param str city: A name,
                as on a map.
            :param days: How many.
            """
            return city

        def underlined(city: str, days: int = 1, more: int = 1) -> str:
            """Tell the weather.

            Parameters
            ----------
            city : str
                A name,
                as on a map.

            days, more : int, optional
                How many.

            Returns
            -------
            str
                A text.
            """
            return city

        self.assertEqual(
            typed_function(underlined).description, "Tell the weather.\n\nReturns\n-------\nstr\n    A text."
        )
        more = typed_function(underlined).parameters["properties"]["more"]
        self.assertEqual(more["description"], "How many.")
        self.assertEqual(
            typed_function(google).description, "Tell the weather.\n\nOf today and later.\n\nReturns:\n    A text."
        )
        self.assertEqual(typed_function(fields).description, "Tell the weather.")
        for function in (google, fields, underlined):
            properties = typed_function(function).parameters["properties"]
            self.assertEqual(properties["city"]["description"], "A name, as on a map.")
            self.assertEqual(properties["days"]["description"], "How many.")

    def test_the_text_of_the_hint_wins(self) -> None:
        """What `Annotated` says is not written over."""

        def function(city: Annotated[str, "From the hint."]) -> None:
            """Tell.

            Args:
                city: From the docstring.
            """

        self.assertEqual(typed_function(function).parameters["properties"]["city"]["description"], "From the hint.")

    def test_a_text_for_an_argument_that_is_not_there_is_refused(self) -> None:
        """A model would believe it and be told that there is no such argument."""

        def function(city: str) -> None:
            """Tell.

            Args:
                town: A name.
            """

        with self.assertRaises(HintError) as caught:
            typed_function(function)
        self.assertEqual(caught.exception.argument, "town")


class Registration(unittest.TestCase):
    """Two lines make a tool."""

    def test_a_typed_function_is_registered_called_and_still_itself(self) -> None:
        """Found by the words of its docstring, checked by its hints, called with what they promise.

        Claims: T6-007.
        """
        registry = ToolRegistry()

        @registry.tool(effect="read")
        async def price(line: Line, *, level: Level = Level.LOW) -> str:
            """Tell the price of a line.

            Args:
                line: What is bought.
            """
            return f"{line.count} {line.colour.name} {level.name}"

        spec = registry.get("price")
        assert spec is not None
        self.assertEqual((spec.effect, spec.description), ("read", "Tell the price of a line."))
        self.assertEqual([hit["name"] for hit in registry.search("the price")], ["price"])
        answer = call(registry, "price", {"line": {"order": "A", "count": 2.0, "colour": "blue"}, "level": 2})
        self.assertEqual(answer, {"ok": True, "data": "2 BLUE HIGH"})
        self.assertEqual(call(registry, "price", {"line": {"count": 2}})["error"], "invalid_arguments")
        self.assertEqual(asyncio.run(price(Line("A"))), "1 RED LOW")

    def test_a_plain_function_runs_in_a_thread_and_may_hear_of_its_call(self) -> None:
        """The parameter for the context is no argument of a model and needs no hint that JSON expresses."""
        registry = ToolRegistry()

        @registry.tool(effect="read", context_argument="context", name="say")
        def other_name(count: int, context: CallContext) -> str:
            """Say it."""
            return context.tool * count

        self.assertEqual(call(registry, "say", {"count": 2})["data"], "saysay")
        self.assertIsNone(registry.get("other_name"))
        spec = registry.get("say")
        assert spec is not None and spec.parameters is not None
        self.assertEqual(set(spec.parameters["properties"]), {"count"})

    def test_what_no_schema_expresses_is_refused_at_registration(self) -> None:
        """By the argument's name, and nothing is registered; so is a function that describes nothing."""
        registry = ToolRegistry()

        def bad(names: set[str]) -> None:
            """Do it."""

        def silent(name: str) -> None:
            pass

        for function, place in ((bad, "names"), (silent, "description")):
            with self.assertRaises(RegistryError) as caught:
                registry.tool(effect="read")(function)
            self.assertEqual((caught.exception.code, caught.exception.field), ("invalid_tool", place))
        self.assertEqual(registry.catalog().tools, {})
        registry.tool(effect="read", description="Does it.")(silent)
        self.assertIsNotNone(registry.get("silent"))


class TheExample(unittest.TestCase):
    """The whole agent of `examples/agent.py`."""

    def test_the_smallest_agent_does_all_that_it_says(self) -> None:
        """Found and loaded, two calls in one answer, one write approved and one refused, an answer at the end.

        Claims: T6-043.
        """
        program = TOP / "examples" / "agent.py"
        self.assertLessEqual(len([line for line in program.read_text(encoding="utf-8").splitlines() if line]), 40)

        child = run_python([str(program)])

        first, *lines = child.stdout.splitlines()
        self.assertEqual(child.returncode, 0, child.stderr)
        self.assertRegex(first, r'^tools_search \{"loaded":.*"name":"price_of".*"name":"refund"')
        self.assertEqual(
            lines,
            [
                "price_of 1200",
                "price_of 99000",
                "refund 1200 cents for A",
                "refund approval_required",
                "A is paid back. B waits for an approval.",
            ],
        )


if __name__ == "__main__":
    unittest.main()
