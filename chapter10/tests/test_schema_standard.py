"""The standard's own cases, and every definition of a real tool list: right, or refused by name.

The data is not part of the project. The variable `CHAPTER10_DATA` names the folder that holds it, with
`json-schema/*.json` and `mcp-tools-github.json`; without it these tests are skipped.
"""

from __future__ import annotations

import json
import os
import unittest
from collections import Counter
from pathlib import Path
from typing import Any

from chapter10.companions.schemas.schema import CHECKED_KEYWORDS, SchemaError, compile_schema
from chapter10.companions.tools.registry import ToolRegistry, ToolSpec

FOLDER = os.environ.get("CHAPTER10_DATA", "")

NOT_SUPPORTED = {"unevaluatedProperties": 2, "$id": 1, "$ref": 4, "pattern": 1, "patternProperties": 1}
"""How many groups are refused, by the keyword that is named."""


@unittest.skipUnless(FOLDER, "CHAPTER10_DATA names no folder with the standard's cases")
class TheStandard(unittest.TestCase):
    """Groups of a schema and values, made by the authors of the standard."""

    def groups(self) -> list[tuple[str, dict[str, Any]]]:
        found = []
        for path in sorted(Path(FOLDER, "json-schema").glob("*.json")):
            found += [(path.name, group) for group in json.loads(path.read_text(encoding="utf-8"))]
        return found

    def test_every_case_is_right_or_its_group_is_refused_by_name(self) -> None:
        """No schema is half understood: 9 groups are refused, and all 699 cases of the others agree."""
        cases = 0
        refused: Counter[str] = Counter()
        for file, group in self.groups():
            try:
                validator = compile_schema(group["schema"])
            except SchemaError as error:
                self.assertEqual(error.code, "unsupported_keyword", group["description"])
                self.assertIn(f'"{error.keyword}"', json.dumps(group["schema"]))
                refused[error.keyword] += 1
                continue
            for case in group["tests"]:
                found = validator.validate(case["data"])
                self.assertEqual(not found, case["valid"], (file, group["description"], case, found))
                cases += 1
        self.assertEqual(refused, NOT_SUPPORTED)
        self.assertEqual(cases, 699)

    def test_a_refused_use_is_not_one_that_is_checked(self) -> None:
        """What is refused by a keyword that is otherwise checked is a use of it that is not."""
        self.assertEqual(set(NOT_SUPPORTED) & CHECKED_KEYWORDS, {"$id", "$ref", "pattern", "patternProperties"})


@unittest.skipUnless(FOLDER, "CHAPTER10_DATA names no folder with a real tool list")
class ARealToolList(unittest.TestCase):
    """117 definitions of a server that many people use."""

    def test_every_definition_registers(self) -> None:
        """Each becomes a tool that can be found and called; its schema is checked whole."""
        text = Path(FOLDER, "mcp-tools-github.json").read_text(encoding="utf-8")
        registry = ToolRegistry()

        async def handler(**arguments: Any) -> str:
            return "done"

        for tool in json.loads(text)["tools"]:
            registry.register(
                ToolSpec(tool["name"], tool["description"], "read", 1, 1, 100, handler, parameters=tool["inputSchema"])
            )

        self.assertEqual(len(registry.catalog().tools), 117)
        registry.check(registry.catalog())
