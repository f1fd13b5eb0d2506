"""The shipped schemas: valid, one for every kind of document, and the shipped tables fit theirs."""

from __future__ import annotations

import ast
import json

import pytest
from jsonschema import Draft202012Validator, ValidationError

from tests.cli.command import validator
from tests.support.material import ROOT
from toktier import resources
from toktier_cli.verbs.schema import names

# What validate_registry.py holds to its schema.
TABLES = {
    "artifact_pins",
    "siblings",
    "family_licences",
    "support_registry",
    "kernel_digests",
    "kernel_budget",
    "gpu_suitability",
}
# Documents in files: kit.json is held to its schema by tests/artifacts/test_kit.py, the others by tests/certify.
FILES = {"kit", "evidence", "certify_plan", "certify_failure"}
# Answers of `toktier serve` about itself: held to their schemas by tests/router.
ANSWERS = {"serve_stats", "serve_slots"}
SCHEMAS = resources.tables_dir() / "schemas"


def kinds() -> set[str]:
    """Names of the documents that the sources make."""
    found = {"error", "version"}
    for path in (ROOT / "toktier_cli").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Result":
                assert isinstance(node.args[0], ast.Constant), f"{path}: a Result without a literal name"
                found.add(node.args[0].value)
    return found


def test_every_document_has_a_schema_and_every_schema_a_document_or_table() -> None:
    assert set(names()) == kinds() | TABLES | FILES | ANSWERS


@pytest.mark.parametrize("name", names())
def test_a_schema_is_valid_and_names_its_document(name: str) -> None:
    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text("utf-8"))
    Draft202012Validator.check_schema(schema)
    assert schema["$id"] == f"urn:toktier:schema:{name}:1"
    assert schema["properties"]["schema"] == {"const": f"toktier.{name}"}
    assert schema["properties"]["schema_version"] == {"const": 1}
    assert {"schema", "schema_version"} <= set(schema["required"])


def test_the_table_of_pins_fits_its_schema() -> None:
    table = json.loads((resources.tables_dir() / "artifact_pins.json").read_text("utf-8"))
    validator("artifact_pins").validate(table)
    del table["families"]["qwen3_8b"]["files"]["tokenizer.json"]
    with pytest.raises(ValidationError):
        validator("artifact_pins").validate(table)


def test_the_closed_schemas_of_the_tests_refuse_what_is_not_listed() -> None:
    document = {"schema": "toktier.version", "schema_version": 1, "version": "1", "exit_code": 0}
    validator("version").validate(document)
    with pytest.raises(ValidationError):
        validator("version").validate(document | {"extra": 1})
