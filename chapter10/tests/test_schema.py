"""JSON Schema: a truth table for each keyword, refusals by name and place, and the bounds of every check."""

from __future__ import annotations

import json
import unittest
from typing import Any

from chapter10.companions.schemas.schema import (
    CHECKED_KEYWORDS,
    IGNORED_KEYWORDS,
    MAX_SCHEMA_SIZE,
    MAX_STEPS,
    MAX_VIOLATIONS,
    SchemaError,
    Violation,
    compile_schema,
)
from chapter10.companions.schemas.schema_rules import MAX_NESTED, NAMES_A_STEP, TYPES

NOT_APPLIED = (None, True, 1, "x", [1], {"a": 1})

TRUTH: dict[str, list[tuple[Any, list[Any], list[Any]]]] = {
    "type": [
        ({"type": "null"}, [None], [False, 0, "", [], {}]),
        ({"type": "boolean"}, [True, False], [0, 1, "true", None]),
        ({"type": "integer"}, [0, -3, 3.0, 1e300], [True, 3.5, "3", None, [3]]),
        ({"type": "number"}, [0, 3.5, -1e9], [True, "3", None]),
        ({"type": "string"}, ["", "\u4e2d"], [1, 3.0, None, ["a"]]),
        ({"type": "array"}, [[], [1]], [{}, "[]", None]),
        ({"type": "object"}, [{}, {"a": 1}], [[], "{}", None]),
        ({"type": ["integer", "null"]}, [1, 2.0, None], [1.5, "1", False]),
        ({"type": ["string", "number", "boolean"]}, ["a", 1.5, True], [None, [], {}]),
        ({"type": list(TYPES)}, [None, True, 1, 1.5, "a", [], {}], []),
    ],
    "properties": [
        (
            {"properties": {"a": {"type": "integer"}, "b": False}},
            [{}, {"a": 1}, {"c": 1}, [], "x"],
            [{"a": "1"}, {"b": 1}],
        ),
    ],
    "required": [
        ({"required": ["a", "b"]}, [{"a": None, "b": 0}, [], "x"], [{}, {"a": 1}]),
        ({"required": []}, [{}, 1], []),
    ],
    "additionalProperties": [
        ({"properties": {"a": {}}, "additionalProperties": False}, [{}, {"a": 1}, [1]], [{"a": 1, "b": 2}]),
        ({"additionalProperties": {"type": "integer"}}, [{}, {"x": 1}], [{"x": "1"}]),
        ({"properties": {"a": {}}, "additionalProperties": {"type": "integer"}}, [{"a": "x", "b": 1}], [{"b": "1"}]),
        ({"additionalProperties": True}, [{"x": "1"}], []),
        (
            {"allOf": [{"properties": {"a": {}}}], "additionalProperties": False},
            [{}],
            [{"a": 1}],
        ),
    ],
    "items": [
        ({"items": {"type": "integer"}}, [[], [1, 2.0], {"0": "x"}], [[1, "2"], [True]]),
        ({"items": False}, [[], {}], [[1]]),
    ],
    "enum": [
        ({"enum": [1, 2]}, [1, 2.0], [True, "1", 3, None, [1]]),
        ({"enum": [True, "a", None]}, [True, "a", None], [1, 1.0, False, 0, "A"]),
        ({"enum": [[1, True], {"a": [0]}]}, [[1.0, True], {"a": [0]}], [[True, 1], {"a": [False]}, [1], {}]),
        ({"enum": []}, [], [None, 1]),
        ({"enum": ["a\u0308"]}, ["a\u0308"], ["\u00e4"]),
    ],
    "const": [
        ({"const": 0}, [0, 0.0, -0.0], [False, "0", None, [], {}]),
        ({"const": {"a": 1, "b": [False]}}, [{"b": [False], "a": 1.0}], [{"a": 1, "b": [0]}, {"a": 1}]),
        ({"const": 9007199254740992}, [9007199254740992.0], [9007199254740993, 9007199254740991]),
        ({"const": None}, [None], [False, 0, ""]),
    ],
    "anyOf": [
        ({"anyOf": [{"type": "string"}, {"minimum": 2}]}, ["a", 2, None], [1, 1.5]),
        ({"anyOf": [False, False]}, [], [1]),
    ],
    "oneOf": [
        ({"oneOf": [{"type": "integer"}, {"minimum": 2}]}, [1, 2.5, "a"], [3, 1.5]),
        ({"oneOf": [True, True]}, [], [1]),
    ],
    "allOf": [({"allOf": [{"minimum": 1}, {"maximum": 3}]}, [1, 2, 3, "x"], [0, 4])],
    "not": [({"not": {"type": "string"}}, [1, None], ["a"]), ({"not": {}}, [], [1, {}])],
    "minimum": [({"minimum": 1.5}, [1.5, 2, "1", True], [1, 1.49])],
    "maximum": [({"maximum": 3}, [3, 3.0, -1, "9", True], [3.01, 4])],
    "exclusiveMinimum": [({"exclusiveMinimum": 1}, [1.01, 2, "0"], [1, 1.0, 0])],
    "exclusiveMaximum": [
        ({"maximum": 3, "exclusiveMaximum": True}, [2, "x"], [3, 4]),
        ({"maximum": 3, "exclusiveMaximum": False}, [3], [4]),
        ({"exclusiveMaximum": True}, [3], []),
        ({"exclusiveMaximum": 1}, [0.99, "2"], [1, 1.0, 2]),
    ],
    "minLength": [
        ({"minLength": 2}, ["ab", "\U0001f600\U0001f600", 1, [1]], ["a", "\U0001f600"]),
        ({"minLength": 0}, ["", "a"], []),
    ],
    "maxLength": [({"maxLength": 2.0}, ["ab", "\U0001f600\U0001f600", 123], ["abc"])],
    "minItems": [({"minItems": 1}, [[0], {}, ""], [[]])],
    "maxItems": [
        ({"maxItems": 1}, [[], [0], {"a": 1, "b": 2}], [[0, 0]]),
        ({"maxItems": 0}, [[]], [[0]]),
    ],
    "pattern": [({"pattern": "^a+$"}, ["aa", 5, None, ["b"]], ["", "ab", "a\n"])],
    "$ref": [
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "integer"}}}, [1], ["1"]),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "array"}}, "maxItems": 1}, [[1]], [[1, 2], 1]),
        ({"properties": {"a": {"type": "integer"}, "b": {"$ref": "#/properties/a"}}}, [{"b": 1}], [{"b": "1"}]),
        ({"properties": {"next": {"$ref": "#"}}, "additionalProperties": False}, [{"next": {}}], [{"next": {"x": 1}}]),
        ({"anyOf": [{"type": "null"}, {"$ref": "#/anyOf/0"}]}, [None], [1]),
        (
            {"$defs": {"a/b": {"$defs": {'~c%"': {"const": 1}}}}, "$ref": "#/$defs/a~1b/$defs/~0c%25%22"},
            [1],
            [2],
        ),
        ({"$defs": {"": {"$defs": {"": {"const": 1}}}}, "$ref": "#/$defs//$defs/"}, [1], [2]),
        ({"$defs": {"\u00e4": {"const": 1}}, "$ref": "#/$defs/%C3%A4"}, [1], [2]),
        ({"$defs": {"~1": {"const": 1}, "/": {"const": 2}}, "$ref": "#/$defs/~01"}, [1], [2]),
        ({"properties": {"$ref": {"type": "string"}}}, [{"$ref": "a"}], [{"$ref": 1}]),
        ({"enum": [{"$ref": "#/nowhere"}]}, [{"$ref": "#/nowhere"}], [1]),
    ],
    "multipleOf": [
        ({"multipleOf": 0.01}, [4.35, 0, 1e300, "x", True], [0.0075, 4.351]),
        ({"multipleOf": 3}, [9, 9.0, -3], [10, 9.5]),
    ],
    "uniqueItems": [
        ({"uniqueItems": True}, [[1, True, "1"], [], {"a": 1}, [[1], [True]]], [[1, 1.0], [{"a": 1}, {"a": 1.0}]]),
        ({"uniqueItems": False}, [[1, 1]], []),
    ],
    "prefixItems": [
        ({"prefixItems": [{"type": "integer"}, False]}, [[], [1], {}], [["a"], [1, 2]]),
        ({"prefixItems": [{"type": "integer"}], "items": {"type": "string"}}, [[1, "a"], [1]], [[1, 2], ["a"]]),
    ],
    "additionalItems": [
        ({"items": [{"type": "integer"}], "additionalItems": False}, [[], [1]], [[1, 2], ["a"]]),
        ({"additionalItems": False}, [[1, 2]], []),
        ({"items": {"type": "integer"}, "additionalItems": False}, [[1, 2]], [["a"]]),
    ],
    "contains": [({"contains": {"type": "integer"}}, [[1], ["a", 2], {}], [[], ["a"]])],
    "minContains": [
        ({"contains": {"const": 1}, "minContains": 2}, [[1, 1], [1, 2, 1.0]], [[1], []]),
        ({"contains": {"const": 1}, "minContains": 0}, [[], [2]], []),
        ({"minContains": 2}, [[]], []),
    ],
    "maxContains": [
        ({"contains": {"const": 1}, "maxContains": 1}, [[1], [1, 2]], [[], [1, 1]]),
        ({"maxContains": 0}, [[1]], []),
    ],
    "patternProperties": [
        ({"patternProperties": {"^a": {"type": "integer"}}}, [{"a": 1, "b": "x"}, [], "a"], [{"ab": "x"}]),
        ({"patternProperties": {"a": {"minimum": 1}, "b": {"maximum": 2}}}, [{"ab": 1}], [{"ab": 0}, {"ab": 3}]),
        (
            {"properties": {"x": {}}, "patternProperties": {"^a": {}}, "additionalProperties": False},
            [{"x": 1, "ab": 1}],
            [{"b": 1}],
        ),
    ],
    "propertyNames": [({"propertyNames": {"maxLength": 1}}, [{"a": 1}, {}, ["ab"]], [{"ab": 1}])],
    "minProperties": [({"minProperties": 1}, [{"a": 1}, [], ""], [{}])],
    "maxProperties": [({"maxProperties": 1}, [{"a": 1}, {}, [1, 2]], [{"a": 1, "b": 1}])],
    "dependentRequired": [
        ({"dependentRequired": {"a": ["b", "c"]}}, [{}, {"b": 1}, {"a": 1, "b": 1, "c": 1}, ["a"]], [{"a": 1, "b": 1}]),
    ],
    "dependentSchemas": [
        (
            {"dependentSchemas": {"a": {"maxProperties": 1}, "b": False}},
            [{}, {"a": 1}, "a"],
            [{"a": 1, "c": 1}, {"b": 1}],
        ),
    ],
    "dependencies": [
        ({"dependencies": {"a": ["b"], "c": {"maxProperties": 1}}}, [{}, {"a": 1, "b": 1}, {"c": 1}], [{"a": 1}]),
    ],
    "if": [
        (
            {"if": {"type": "integer"}, "then": {"minimum": 1}, "else": {"type": "string"}},
            [1, "a"],
            [0, None],
        ),
        ({"if": {"type": "integer"}}, [1, "a"], []),
    ],
    "then": [({"if": {"type": "integer"}, "then": {"minimum": 1}}, [1, "a"], [0]), ({"then": False}, [1], [])],
    "else": [({"if": {"type": "integer"}, "else": False}, [1], ["a"]), ({"else": False}, [1], [])],
    "$anchor": [
        ({"$defs": {"a": {"$anchor": "here", "type": "integer"}}, "$ref": "#here"}, [1], ["1"]),
    ],
    "$id": [
        ({"$id": "https://example.org/a.json", "$defs": {"a": {"const": 1}}, "$ref": "a.json#/$defs/a"}, [1], [2]),
        ({"$defs": {"a": {"$id": "urn:b", "$defs": {"c": {"const": 1}}}}, "$ref": "urn:b#/$defs/c"}, [1], [2]),
        (
            {"$defs": {"a": {"$id": "b", "$ref": "#/$defs/c", "$defs": {"c": {"const": 1}}}}, "$ref": "b"},
            [1],
            [2],
        ),
        ({"definitions": {"a": {"$id": "#here", "const": 1}}, "$ref": "#here"}, [1], [2]),
        ({"$defs": {"a": {"$id": "x:b"}, "c": {"const": 1}}, "$ref": "#/$defs/c"}, [1], [2]),
        ({"then": {"$anchor": "t", "const": 1}, "$ref": "#t"}, [1], [2]),
    ],
    "$defs": [({"$defs": {"a": False}}, [1, {}], [])],
    "definitions": [({"definitions": {"a": {"const": 1}}, "$ref": "#/definitions/a"}, [1], [2])],
}


class Keywords(unittest.TestCase):
    """What each keyword accepts and refuses."""

    def test_every_keyword_keeps_its_truth_table(self) -> None:
        """Types are JSON's: true is no integer and no 1, 3.0 is an integer, lengths are code points."""
        for rows in TRUTH.values():
            for schema, accepted, refused in rows:
                validator = compile_schema(schema)
                for value in accepted:
                    self.assertEqual(validator.validate(value), [], (schema, value))
                for value in refused:
                    self.assertNotEqual(validator.validate(value), [], (schema, value))

    def test_what_a_schema_accepts_its_opposite_refuses(self) -> None:
        """The tables again, the other way round: `not` only decides, and asks for no reason."""
        turned = 0
        for rows in TRUTH.values():
            for schema, accepted, refused in rows:
                if "$ref" in json.dumps(schema):
                    continue  # its pointers start at the root
                opposite = compile_schema({"not": schema})
                for value in accepted:
                    self.assertEqual([found.keyword for found in opposite.validate(value)], ["not"], (schema, value))
                for value in refused:
                    self.assertEqual(opposite.validate(value), [], (schema, value))
                turned += 1
        self.assertGreater(turned, 40)

    def test_an_alternative_that_fits_ends_the_search(self) -> None:
        """What stands behind it is not looked at, however expensive it would be."""
        chain = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(MAX_NESTED)} | {f"d{MAX_NESTED}": True}
        costly = {"$ref": "#/$defs/d0"}

        self.assertEqual(compile_schema({"$defs": chain, "anyOf": [True, costly]}).validate(1), [])
        (found,) = compile_schema({"$defs": chain, "anyOf": [costly, True]}).validate(1)
        self.assertEqual(found.keyword, "limit")

    def test_every_checked_keyword_has_a_truth_table(self) -> None:
        """A new keyword without a table of its own does not pass."""
        self.assertEqual(set(TRUTH), CHECKED_KEYWORDS)

    def test_true_and_false_are_schemas(self) -> None:
        """True accepts every JSON value and False none."""
        for value in NOT_APPLIED:
            self.assertEqual(compile_schema(True).validate(value), [])
            self.assertEqual(len(compile_schema(False).validate(value)), 1)

    def test_annotations_change_nothing(self) -> None:
        """Titles, defaults, formats and own words are kept for readers; the default may even contradict the type."""
        schema: dict[str, Any] = dict.fromkeys(IGNORED_KEYWORDS, "word") | {
            "x-own": 1,
            "type": "integer",
            "default": None,
        }

        self.assertEqual(compile_schema(schema).validate(3), [])
        self.assertEqual(len(compile_schema(schema).validate("3")), 1)

    def test_no_default_is_filled_in(self) -> None:
        """A value comes back as it went in, also where the schema names a default. Claims: T6-035."""
        validator = compile_schema({"properties": {"n": {"type": "integer", "default": 7}}, "required": ["n"]})

        self.assertEqual(validator.validate({}), [Violation("/n", "required", "is missing")])
        self.assertEqual(validator.read({"n": 3.0}), ({"n": 3.0}, []))
        self.assertIs(type(validator.read({"n": 3.0})[0]["n"]), float)


class Violations(unittest.TestCase):
    """Where, which keyword, and why."""

    def test_what_was_read_is_a_copy(self) -> None:
        """Whoever has the value can change it afterwards, at any depth, and nothing follows."""
        given: dict[str, Any] = {"a": [{"b": 1}]}
        read, found = compile_schema(True).read(given)
        given["a"][0]["b"] = 2
        self.assertEqual((read, found), ({"a": [{"b": 1}]}, []))

    def test_each_violation_has_its_place_keyword_and_words(self) -> None:
        """Paths are JSON pointers into the value, a missing name included."""
        validator = compile_schema(
            {
                "type": "object",
                "properties": {
                    "a/b": {"type": "integer"},
                    "list": {"items": {"properties": {"n": {"maximum": 5}}, "required": ["n"]}},
                    "one": {"anyOf": [{"const": 1}, {"const": 2}]},
                    "two": {"allOf": [{"minLength": 2}, {"pattern": "^x"}]},
                    "three": {"enum": [1, 2]},
                    "four": {"const": 1},
                },
                "additionalProperties": False,
            }
        )

        found = validator.validate(
            {"a/b": True, "list": [{"n": 6}, {}], "one": 3, "two": "a", "limt": 1, "three": 3, "four": 3}
        )

        self.assertEqual(
            found,
            [
                Violation("/limt", "additionalProperties", "is not a property of this tool or object"),
                Violation("/a~1b", "type", "is not of type integer"),
                Violation("/four", "const", "is not the one allowed value"),
                Violation("/list/0/n", "maximum", "is more than 5"),
                Violation("/list/1/n", "required", "is missing"),
                Violation("/one", "anyOf", "fits none of the alternatives"),
                Violation("/three", "enum", "is not one of the listed values"),
                Violation("/two", "minLength", "has fewer characters than 2"),
                Violation("/two", "pattern", "does not match the pattern"),
            ],
        )

    def test_the_nearest_alternative_says_what_it_lacks(self) -> None:
        """The kind that the value names is meant, and the place of the fault is below it.

        Where no alternative wants this type or this value, none is near, and nothing is added.
        """
        circle = {"type": "object", "properties": {"kind": {"const": "circle"}, "r": {"type": "number"}}}
        box = {"type": "object", "properties": {"kind": {"const": "box"}, "a": {"minimum": 1}}, "required": ["a", "b"]}
        for keyword in ("anyOf", "oneOf"):
            validator = compile_schema({"items": {keyword: [circle, {"type": "null"}, box]}})
            self.assertEqual(
                validator.validate([{"kind": "box", "a": 0}]),
                [
                    Violation("/0", keyword, "fits none of the alternatives; the nearest is number 3"),
                    Violation("/0/a", "minimum", "is less than 1"),
                    Violation("/0/b", "required", "is missing"),
                ],
            )
            self.assertEqual(validator.validate([7]), [Violation("/0", keyword, "fits none of the alternatives")])
        more = compile_schema({"oneOf": [{"minimum": 1}, {"maximum": 3}]}).validate(2)
        self.assertEqual(more, [Violation("", "oneOf", "fits more than one of the alternatives")])

    def test_an_explanation_that_takes_too_long_leaves_the_verdict(self) -> None:
        """Alternatives inside alternatives are told apart while there are steps, and refused all the same."""
        array = {"type": "array", "items": {"$ref": "#/$defs/a"}}
        validator = compile_schema({"$defs": {"a": {"anyOf": [array] * 4}}, "$ref": "#/$defs/a"})
        value: Any = "x"
        for _ in range(6):
            value = [value]

        short, long = validator.validate(value[0][0]), validator.validate(value)

        self.assertEqual(short[0], Violation("", "anyOf", "fits none of the alternatives; the nearest is number 1"))
        self.assertEqual(long, [Violation("", "anyOf", "fits none of the alternatives")])

    def test_words_for_each_new_kind_of_fault(self) -> None:
        """Place, keyword and words, for arrays and objects."""
        for schema, value, wanted in (
            ({"uniqueItems": True}, [1, 1], ("", "uniqueItems", "has the same item twice")),
            ({"multipleOf": 0.5}, 0.3, ("", "multipleOf", "is not a multiple of 1/2")),
            ({"prefixItems": [True, False]}, [1, 2], ("/1", "false", "is not allowed here")),
            ({"prefixItems": [True], "items": {"type": "null"}}, [1, 2], ("/1", "type", "is not of type null")),
            (
                {"propertyNames": {"maxLength": 1}},
                {"ab": 1},
                ("/ab", "propertyNames", "has a name that is not allowed"),
            ),
            ({"patternProperties": {"^a": {"type": "null"}}}, {"ab": 1}, ("/ab", "type", "is not of type null")),
            ({"dependentRequired": {"a": ["b"]}}, {"a": 1}, ("/b", "required", "is missing")),
            ({"if": True, "then": {"type": "null"}}, 1, ("", "type", "is not of type null")),
            ({"if": False, "else": {"type": "null"}}, 1, ("", "type", "is not of type null")),
            (
                {"contains": {"const": 1}, "maxContains": 2},
                [],
                ("", "contains", "has not at least 1 and at most 2 of the items that are asked for"),
            ),
            ({"maxProperties": 0}, {"a": 1}, ("", "maxProperties", "has more members than 0")),
        ):
            with self.subTest(schema=schema):
                self.assertEqual(compile_schema(schema).validate(value), [Violation(*wanted)])

    def test_no_part_of_the_value_is_in_a_reason(self) -> None:
        """A password in a wrong place is not repeated by the error."""
        secret = "hunter2-very-secret"
        validator = compile_schema(
            {
                "properties": {
                    "a": {"type": "integer"},
                    "b": {"enum": [1]},
                    "c": {"pattern": "^x"},
                    "d": {"maxLength": 1},
                }
            }
        )

        found = validator.validate({"a": secret, "b": secret, "c": secret, "d": secret})

        self.assertEqual(len(found), 4)
        self.assertNotIn(secret, repr(found))

    def test_the_number_of_violations_is_bounded(self) -> None:
        """A thousand wrong items give as many reasons as the bound says, and quickly."""
        validator = compile_schema({"items": {"type": "integer"}})

        self.assertEqual(len(validator.validate(["x"] * 1000)), MAX_VIOLATIONS)
        many = compile_schema({"required": [f"n{number}" for number in range(100)]})
        self.assertEqual(len(many.validate({})), MAX_VIOLATIONS)

    def test_values_that_are_no_json_are_violations(self) -> None:
        """NaN, tuples, keys that are no strings and half characters never pass, whatever the schema says."""
        for value, path in (
            ({"a": float("nan")}, "/a"),
            ((1, 2), ""),
            ({1: "a"}, ""),
            (["\ud800"], "/0"),
            ({"a": b"x"}, "/a"),
        ):
            with self.subTest(path=path):
                (found,) = compile_schema(True).validate(value)
                self.assertEqual((found.path, found.keyword), (path, "json"))


class Refusals(unittest.TestCase):
    """What is refused when it is compiled."""

    def assert_refused(self, schema: object, code: str, keyword: str, path: str) -> None:
        with self.assertRaises(SchemaError) as caught:
            compile_schema(schema)
        error = caught.exception
        self.assertEqual((error.code, error.keyword, error.path), (code, keyword, path), schema)
        self.assertEqual(str(error), code)
        self.assertTrue(error.reason)

    def test_every_other_validation_keyword_is_refused_by_name_and_place(self) -> None:
        """Nothing is silently ignored, at the root or deep inside, used or not."""
        for keyword in (
            "unevaluatedProperties", "unevaluatedItems", "$dynamicRef", "$dynamicAnchor", "$recursiveRef",
            "$recursiveAnchor", "$vocabulary", "nullable", "requird", "id", "extends", "disallow", "divisibleBy",
        ):  # fmt: skip
            self.assert_refused({keyword: {}}, "unsupported_keyword", keyword, "")
            inside = {"$defs": {"a/b": {"allOf": [True, {"items": {keyword: 1}}]}}}
            self.assert_refused(inside, "unsupported_keyword", keyword, "/$defs/a~1b/allOf/1/items")

    def test_uses_of_a_checked_keyword_that_are_not_checked_are_refused(self) -> None:
        """Remote and unknown references, other dialects, a list of items, patterns of another dialect."""
        refused: list[tuple[object, str, str]] = [
            ({"$ref": "https://example.com/x"}, "$ref", ""),
            ({"items": {"$ref": "other.json#/a"}}, "$ref", "/items"),
            ({"$ref": "#anchor"}, "$ref", ""),
            ({"properties": {"a": {"$ref": "#anchor"}}}, "$ref", "/properties/a"),
            ({"$ref": "#/$defs/none"}, "$ref", ""),
            ({"x-defs": {"a": {}}, "$ref": "#/x-defs/a"}, "$ref", ""),
            ({"enum": [{}], "$ref": "#/enum/0"}, "$ref", ""),
            ({"$ref": "#/$defs/a~2", "$defs": {"a~2": {}}}, "$ref", ""),
            ({"$ref": "#/$defs/%zz", "$defs": {"%zz": {}}}, "$ref", ""),
            ({"$ref": "#/%ff"}, "$ref", ""),
            ({"$schema": "http://json-schema.org/draft-04/schema#"}, "$schema", ""),
            ({"$schema": 7}, "$schema", ""),
            ({"items": {"$schema": "https://json-schema.org/draft/2020-12/schema"}}, "$schema", "/items"),
            ({"items": [{}], "prefixItems": [{}]}, "items", ""),
            ({"$ref": "a#/b", "$id": "https://example.org/x"}, "$ref", ""),
            ({"$ref": "../a"}, "$ref", ""),
            ({"items": {"$id": "/a"}}, "$id", "/items"),
            ({"$id": "#a b"}, "$id", ""),
            ({"patternProperties": {"(?=a)": {}}}, "patternProperties", ""),
            ({"pattern": "(?=a)"}, "pattern", ""),
            ({"pattern": 1}, "pattern", ""),
        ]
        for schema, keyword, path in refused:
            self.assert_refused(schema, "unsupported_keyword", keyword, path)
        with self.assertRaises(SchemaError) as caught:
            compile_schema({"$ref": "https://example.com/x"})
        self.assertEqual(caught.exception.reason, "points outside this schema")

    def test_what_is_no_schema_is_refused(self) -> None:
        """A keyword with a value that it does not take, and a root that is no schema."""
        refused: list[tuple[object, str, str]] = [
            ({"type": "text"}, "type", ""),
            ({"type": []}, "type", ""),
            ({"type": ["string", "string"]}, "type", ""),
            ({"type": 1}, "type", ""),
            ({"required": "a"}, "required", ""),
            ({"required": ["a", "a"]}, "required", ""),
            ({"required": [1]}, "required", ""),
            ({"properties": []}, "properties", ""),
            ({"properties": {"a": 1}}, "", "/properties/a"),
            ({"additionalProperties": 1}, "", "/additionalProperties"),
            ({"items": None}, "", "/items"),
            ({"enum": {}}, "enum", ""),
            ({"minimum": "1"}, "minimum", ""),
            ({"maximum": True}, "maximum", ""),
            ({"maximum": "1", "exclusiveMaximum": True}, "exclusiveMaximum", ""),
            ({"minLength": -1}, "minLength", ""),
            ({"maxItems": 1.5}, "maxItems", ""),
            ({"anyOf": []}, "anyOf", ""),
            ({"oneOf": {}}, "oneOf", ""),
            ({"allOf": {"a": True}}, "allOf", ""),
            ({"oneOf": 5}, "oneOf", ""),
            ({"not": 0}, "", "/not"),
            ({"$ref": 1}, "$ref", ""),
            ({"$defs": []}, "$defs", ""),
            ({"multipleOf": 0}, "multipleOf", ""),
            ({"multipleOf": "1"}, "multipleOf", ""),
            ({"multipleOf": True}, "multipleOf", ""),
            ({"uniqueItems": 1}, "uniqueItems", ""),
            ({"prefixItems": []}, "prefixItems", ""),
            ({"prefixItems": {}}, "prefixItems", ""),
            ({"contains": 1}, "", "/contains"),
            ({"minContains": -1}, "minContains", ""),
            ({"contains": {}, "maxContains": "1"}, "maxContains", ""),
            ({"maxProperties": 1.5}, "maxProperties", ""),
            ({"propertyNames": 1}, "", "/propertyNames"),
            ({"patternProperties": []}, "patternProperties", ""),
            ({"dependentRequired": {"a": "b"}}, "dependentRequired", ""),
            ({"dependentSchemas": []}, "dependentSchemas", ""),
            ({"dependentSchemas": {"a": ["b"]}}, "", "/dependentSchemas/a"),
            ({"if": 1}, "", "/if"),
            ({"else": 1}, "", "/else"),
            ({"$id": 1}, "$id", ""),
            ({"$anchor": "#a"}, "$anchor", ""),
            ({"$anchor": "a", "items": {"$anchor": "a"}}, "$anchor", "/items"),
            ({"$defs": {"a": {"$id": "x:a"}, "b": {"$id": "x:a"}}}, "$id", "/$defs/b"),
            (None, "", ""),
            ("object", "", ""),
            ([], "", ""),
            ({"const": float("nan")}, "", ""),
            ({"description": "\ud800"}, "", ""),
            ({"enum": [(1,)]}, "", ""),
            ({"description": "x" * 300_000}, "", ""),
        ]
        for schema, keyword, path in refused:
            self.assert_refused(schema, "invalid_schema", keyword, path)

    def test_a_schema_is_taken_up_to_its_size(self) -> None:
        """The last character passes, one more does not; a listed value has as many items as a check has steps."""
        empty = len('{"title":""}')
        compile_schema({"title": "x" * (MAX_SCHEMA_SIZE - empty)})
        self.assert_refused({"title": "x" * (MAX_SCHEMA_SIZE - empty + 1)}, "invalid_schema", "", "")
        compile_schema({"const": [0] * MAX_STEPS})
        self.assert_refused({"const": [0] * (MAX_STEPS + 1)}, "invalid_schema", "", "")

    def test_a_reference_that_never_goes_into_the_value_is_refused(self) -> None:
        """A circle of references would ask the same question for ever."""
        self.assert_refused({"$ref": "#"}, "unsupported_keyword", "$ref", "")
        self.assert_refused(
            {"$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"not": {"$ref": "#/$defs/a"}}}},
            "unsupported_keyword",
            "$ref",
            "/$defs/a/allOf/0",
        )
        for around in ("if", "then", "else"):
            self.assert_refused({"if": {}, around: {"$ref": "#"}}, "unsupported_keyword", "$ref", f"/{around}")
        inner = {"dependentSchemas": {"a": {"$ref": "#"}}}
        self.assert_refused(inner, "unsupported_keyword", "$ref", "/dependentSchemas/a")

    def test_a_keyword_of_another_dialect_is_refused_where_the_dialect_is_said(self) -> None:
        """Each dialect would ignore what only the other one knows; a schema that says nothing may have both."""
        for dialect, only in (
            (
                "https://json-schema.org/draft/2020-12/schema",
                {"additionalItems": False, "dependencies": {}, "items": [{}]},
            ),
            (
                "http://json-schema.org/draft-07/schema#",
                {
                    "prefixItems": [{}],
                    "minContains": 1,
                    "maxContains": 1,
                    "dependentRequired": {},
                    "dependentSchemas": {},
                    "$anchor": "a",
                },
            ),
        ):
            old = {"$schema": dialect, "minimum": 1, "exclusiveMinimum": True}
            self.assert_refused(old, "invalid_schema", "exclusiveMinimum", "")
            for keyword, value in only.items():
                compile_schema({keyword: value})
                self.assert_refused({"$schema": dialect, keyword: value}, "unsupported_keyword", keyword, "")

    def test_draft_07_references_stand_alone(self) -> None:
        """What that dialect would hide beside a reference is refused; readers' words may stand there."""
        draft = "http://json-schema.org/draft-07/schema#"
        beside = {"$schema": draft, "definitions": {"a": {}}, "items": {"$ref": "#/definitions/a", "maximum": 1}}
        self.assert_refused(beside, "unsupported_keyword", "$ref", "/items")

        named = {"$schema": draft, "definitions": {"a": {}}, "items": {"$ref": "#/definitions/a", "$id": "x:y"}}
        self.assert_refused(named, "unsupported_keyword", "$ref", "/items")
        compile_schema({"$schema": draft, "definitions": {"a": {}}, "items": {"$ref": "#/definitions/a", "title": "t"}})
        words: dict[str, Any] = dict.fromkeys(IGNORED_KEYWORDS, "word")
        compile_schema({"$schema": draft, "definitions": {"a": {}}, "$ref": "#/definitions/a", "$defs": {}, **words})
        compile_schema({**beside, "$schema": "https://json-schema.org/draft/2020-12/schema"})

    def test_a_schema_is_copied(self) -> None:
        """Changing it after compilation changes nothing."""
        schema: dict[str, Any] = {"properties": {"a": {"enum": [1]}}}
        validator = compile_schema(schema)

        schema["properties"]["a"]["enum"].append(2)

        self.assertEqual(len(validator.validate({"a": 2})), 1)


class Bounds(unittest.TestCase):
    """Every check ends."""

    def test_the_published_limits_are_these(self) -> None:
        """What a reader is told of sizes, steps, depth and the number of reasons."""
        self.assertEqual(
            (MAX_SCHEMA_SIZE, MAX_STEPS, MAX_NESTED, MAX_VIOLATIONS, NAMES_A_STEP), (262_144, 100_000, 150, 20, 32)
        )

    def test_depth_is_counted_to_the_last_subschema(self) -> None:
        """A chain of as many as the bound says passes, one more does not, whatever was looked at before it."""
        for before in ([], [True] * 9, [{"anyOf": [False] * 9 + [True]}]):
            for depth, keywords in ((MAX_NESTED, []), (MAX_NESTED + 1, ["limit"])):
                links = depth - 2  # under the root and the last
                chain = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(links)} | {f"d{links}": True}
                validator = compile_schema({"$defs": chain, "allOf": [*before, {"$ref": "#/$defs/d1"}]})
                with self.subTest(before=before, depth=depth):
                    self.assertEqual([found.keyword for found in validator.validate(1)], keywords)

    def test_many_names_cost_little(self) -> None:
        """A wide object leaves enough for the rules behind the one that looked at its names."""
        names = [f"name_{number}" for number in range(3200)]
        wide = dict.fromkeys(names, 1)
        for schema in ({"allOf": [{"required": names}, True]}, {"properties": {"name_0": {"type": "integer"}}}):
            self.assertEqual(compile_schema(schema).validate(wide), [])

    def test_an_array_is_not_compared_where_no_array_is_listed(self) -> None:
        """However long it is, it is simply another value."""
        (found,) = compile_schema({"enum": [0, "a"]}).validate([0] * (MAX_STEPS + 1))

        self.assertEqual(found.keyword, "enum")

    def test_recursive_references_follow_the_value(self) -> None:
        """A tree of nodes is checked to its leaves, and a wrong leaf has its path."""
        validator = compile_schema(
            {
                "$defs": {
                    "node": {
                        "type": "object",
                        "properties": {"value": {"type": "integer"}, "children": {"items": {"$ref": "#/$defs/node"}}},
                        "required": ["value"],
                    }
                },
                "$ref": "#/$defs/node",
            }
        )
        tree: dict[str, Any] = {"value": 1, "children": [{"value": 2}, {"value": 3, "children": [{"value": "4"}]}]}

        self.assertEqual(
            validator.validate(tree), [Violation("/children/1/children/0/value", "type", "is not of type integer")]
        )

    def test_an_exponential_schema_ends_at_the_steps(self) -> None:
        """Alternatives that double at every level do not take for ever: the value is invalid by the limit."""
        validator = compile_schema(
            {
                "$defs": {
                    "a": {
                        "oneOf": [
                            {"items": {"$ref": "#/$defs/a"}, "type": "array"},
                            {"items": {"$ref": "#/$defs/a"}, "type": "array", "minItems": 2},
                            {"const": 1},
                        ]
                    }
                },
                "$ref": "#/$defs/a",
            }
        )
        value: Any = 2
        for _ in range(30):
            value = [value]

        self.assertEqual([found.keyword for found in validator.validate(value)], ["limit"])

    def test_long_arrays_end_at_the_steps(self) -> None:
        """The bound itself passes, one more does not."""
        validator = compile_schema({"items": {"type": "integer"}})

        self.assertEqual(validator.validate([1] * (MAX_STEPS - 1)), [])
        self.assertEqual([found.keyword for found in validator.validate([1] * MAX_STEPS)], ["limit"])

    def test_a_value_or_a_schema_that_is_too_deep_is_refused_and_not_a_crash(self) -> None:
        """Depth is bounded in the value, in the schema and where both multiply."""
        deep: Any = 1
        for _ in range(1000):
            deep = [deep]
        self.assertEqual([found.keyword for found in compile_schema(True).validate(deep)], ["limit"])
        schema: Any = {"type": "integer"}
        for _ in range(1000):
            schema = {"not": schema}
        with self.assertRaises(SchemaError):
            compile_schema(schema)
        chain: dict[str, Any] = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(200)}
        chained = compile_schema({"$defs": {**chain, "d200": {"type": "integer"}}, "$ref": "#/$defs/d0"})
        self.assertEqual([found.keyword for found in chained.validate(1)], ["limit"])

    def test_comparing_with_listed_values_is_counted(self) -> None:
        """Many alternatives that each compare a large array share the steps."""
        validator = compile_schema({"anyOf": [{"const": [n]} for n in range(100)]})

        self.assertEqual([found.keyword for found in validator.validate([0] * 5000)], ["limit"])
        objects = compile_schema({"anyOf": [{"const": {"n": n}} for n in range(100)]})
        self.assertEqual([found.keyword for found in objects.validate({str(n): 0 for n in range(5000)})], ["limit"])

    def test_a_schema_that_doubles_ends_at_the_steps_whatever_it_asks(self) -> None:
        """Long lists of names and long texts use up what a check has, and not only the subschemas do."""
        names = [f"name_{number}" for number in range(3200)]
        wide = dict.fromkeys(names, 1)
        questions: list[tuple[dict[str, Any], Any]] = [
            ({"required": names}, wide),
            ({"properties": {"other": True}}, wide),
            ({"dependentRequired": {name: [] for name in names}}, {"other": 1}),
            ({"patternProperties": {"^other": True}}, wide),
            (
                {"not": {"patternProperties": {"^name": True}, "additionalProperties": False}},
                {**wide, "other": 1},
            ),
            ({"pattern": "^a*$"}, "a" * 10_000),
        ]
        for question, value in questions:
            doubled: dict[str, Any] = {"d0": question}
            for level in range(1, 11):
                doubled[f"d{level}"] = {"allOf": [{"$ref": f"#/$defs/d{level - 1}"}] * 2}
            validator = compile_schema({"$defs": doubled, "$ref": "#/$defs/d10"})
            with self.subTest(keyword=min(question)):
                self.assertEqual(compile_schema(question).validate(value), [])
                self.assertEqual([found.keyword for found in validator.validate(value)], ["limit"])

    def test_all_texts_of_a_value_share_the_work_of_patterns(self) -> None:
        """One expensive text is within the limit of a match, many together are not."""
        validator = compile_schema({"items": {"pattern": "(a|b)*a(a|b){200}c|z$"}})
        texts = [f"{number:b}".replace("0", "a").replace("1", "b") * 20 + "z" for number in range(500, 700)]

        self.assertEqual(validator.validate(texts[:1]), [])
        self.assertEqual([found.keyword for found in validator.validate(texts)], ["limit"])
