"""The group `schema`: which arguments a schema lets through, and which schemas it refuses at registration.

Source: the document on the tool registry, its first step (claims T6-003, T6-005, T6-035).
"""

from __future__ import annotations

from typing import Any, Final

from chapter10.companions.schemas.schema import JsonError, SchemaError, compile_schema, strict_json
from chapter10.lab.evidence.evidence import Group, Scene

__all__ = ["GROUP", "schema_experiment"]

_ORDER: Final = {
    "type": "object",
    "properties": {
        "order_id": {"type": "string", "minLength": 1, "maxLength": 12},
        "lines": {"type": "integer", "minimum": 1, "maximum": 50, "default": 1},
        "state": {"enum": ["paid", "open", 1]},
    },
    "required": ["order_id"],
    "additionalProperties": False,
}
"""A schema as small as those of real tool lists."""

_TREE: Final = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#"}}},
    "required": ["name"],
    "additionalProperties": False,
}
"""A schema that refers to itself, as four of the 644 real ones that were looked at do."""

_ARGUMENTS: Final = (
    ("an order", '{"order_id":"A"}'),
    ("3.0 is an integer", '{"order_id":"A","lines":3.0}'),
    ("true is no integer", '{"order_id":"A","lines":true}'),
    ("true is not 1", '{"order_id":"A","state":true}'),
    ("a number as text", '{"order_id":7}'),
    ("a missing argument", '{"lines":3}'),
    ("one that nobody knows", '{"order_id":"A","colour":"red"}'),
    ("too long", '{"order_id":"AAAAAAAAAAAAA"}'),
    ("two things wrong", '{"lines":0}'),
)
_FORMS: Final = (
    ("a place in a list", {"prefixItems": [{"type": "string"}, {"type": "number"}]}, '["A","two"]'),
    ("names by their form", {"patternProperties": {"^x-": {"type": "string"}}}, '{"x-note":7}'),
    ("one asks for another", {"dependentRequired": {"card": ["name"]}}, '{"card":"4111"}'),
    ("if and then", {"if": {"required": ["gift"]}, "then": {"required": ["to"]}}, '{"gift":true}'),
    ("at least two that fit", {"contains": {"type": "integer"}, "minContains": 2}, '[1,"a"]'),
    ("the nearest of two", {"anyOf": [
        {"type": "object", "properties": {"day": {"type": "integer"}}, "required": ["day"]},
        {"type": "object", "properties": {"week": {"type": "integer"}}, "required": ["week"]}]}, '{"day":"one"}'),
)  # fmt: skip
"""What generators of schemas write beyond the five keywords that everybody knows, and arguments that break it."""
_TEXTS: Final = (
    ("cut off in the middle", '{"order_id":"A'),
    ("the same key twice", '{"order_id":"A","order_id":"B"}'),
    ("NaN", '{"lines":NaN}'),
    ("half a character", '{"order_id":"\\ud800"}'),
    ("no JSON", "order A"),
)
_REFUSED: Final = (
    ("what no keyword looked at", {"type": "object", "unevaluatedProperties": False}),
    ("a reference that moves", {"properties": {"a": {"$dynamicRef": "#node"}}}),
    ("a remote reference", {"properties": {"a": {"$ref": "https://example.org/order.json"}}}),
    ("a reference to nothing", {"properties": {"a": {"$ref": "#/$defs/order"}}}),
    ("a circle", {"$ref": "#"}),
    ("another dialect", {"$schema": "http://json-schema.org/draft-04/schema"}),
    ("no type of JSON", {"properties": {"a": {"type": "dict"}}}),
)


def schema_experiment(scene: Scene) -> dict[str, Any]:
    """Check arguments as a model writes them, texts that are no arguments, and schemas that promise too much."""
    validator = compile_schema(_ORDER)
    scene.begin("参数先过 Schema / arguments meet the schema first")
    arguments = []
    for case, text in _ARGUMENTS:
        found = [f"{one.path or '/'}: {one.keyword}: {one.reason}" for one in validator.validate(strict_json(text))]
        scene.note("model", text, "; ".join(found) or "valid")
        arguments.append({"case": case, "arguments": text, "violations": len(found), "found": "; ".join(found)})

    scene.begin("生成器写的 Schema / what generators write")
    forms = []
    for case, form, text in _FORMS:
        found = [f"{one.path or '/'}: {one.keyword}" for one in compile_schema(form).validate(strict_json(text))]
        scene.note("model", text, "; ".join(found) or "valid")
        forms.append({"case": case, "arguments": text, "found": "; ".join(found)})

    scene.begin("不是 JSON 的文本 / text that is no JSON")
    texts = []
    for case, text in _TEXTS:
        try:
            strict_json(text)
            code = "accepted"
        except JsonError as error:
            code = error.code
        scene.note("model", text, code)
        texts.append({"case": case, "text": text, "code": code})

    scene.begin("注册时拒绝 / refused at registration")
    refused = []
    for case, schema in _REFUSED:
        try:
            compile_schema(schema)
            row = {"code": "accepted", "keyword": "", "path": "", "reason": ""}
        except SchemaError as error:
            row = {"code": error.code, "keyword": error.keyword, "path": error.path, "reason": error.reason}
        scene.note("author of a tool", f"registers {case}", f"{row['code']}: {row['keyword']} at {row['path'] or '/'}")
        refused.append({"case": case, **row})
    return {
        "arguments": arguments,
        "forms": forms,
        "texts": texts,
        "refused": refused,
        "default_filled_in": validator.read({"order_id": "A"})[0] != {"order_id": "A"},
        "violations_in_a_tree_of_3_levels": len(compile_schema(_TREE).validate(_tree(3))),
        "violations_in_a_tree_of_40_levels": len(compile_schema(_TREE).validate(_tree(40))),
        "broken_leaf_at": [one.path for one in compile_schema(_TREE).validate(_tree(3, leaf=7))],
    }


def _tree(levels: int, leaf: object = "leaf") -> dict[str, Any]:
    tree: dict[str, Any] = {"name": leaf}
    for level in range(1, levels):
        tree = {"name": f"level {level}", "children": [tree]}
    return tree


GROUP: Final = Group(
    schema_experiment,
    title="参数与 Schema / schema",
    target="schema",
    text="""\
参数在执行之前检查，按 JSON 的类型而不是 Python 的类型：`true` 不是整数，也不等于 1；3.0 是整数。每个错误有路径、
关键字和原因，原因里没有参数的值。不检查的关键字在注册时按名字和位置拒绝，绝不默默忽略；默认值不会被填进去。
几种写法里只要合一种时，说的是最接近的那一种错在哪里。

Arguments are checked before anything runs, by the types of JSON and not those of Python. Each violation has
a path, a keyword and a reason that repeats no value. A keyword that is not checked is refused at
registration, by name and place, instead of being ignored. No default is filled in, and a schema that refers
to itself is followed. Where one of several forms would do, the nearest one says what is wrong with it.
""",
    tables=("arguments", "forms", "texts", "refused"),
)
