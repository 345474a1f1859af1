"""KServe's resources against the description in its own SDK, read from the files without running them; what they take
from Kubernetes itself (containers, volumes) against the strict JSON schemas of kubernetes-validate."""

import ast
import functools
import json
import pathlib
import re
import sys

import jsonschema
import kubernetes_validate
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

PLAIN = {"str": str, "bool": bool, "int": int, "float": (int, float)}
SDK = next(pathlib.Path(sys.prefix).glob("lib/python*/site-packages/kserve/models"))
SCHEMAS = pathlib.Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"


@functools.lru_cache
def describe(name):
    """{JSON name: type} of one class."""
    file = SDK / (re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower() + ".py")
    body = next(node for node in ast.parse(file.read_text()).body if isinstance(node, ast.ClassDef)).body
    tables = {node.targets[0].id: ast.literal_eval(node.value) for node in body if isinstance(node, ast.Assign)}
    return {tables["attribute_map"][key]: kind for key, kind in tables["openapi_types"].items()}


@functools.lru_cache
def schemas(version):
    """Every reference of a schema goes to one file of definitions."""
    folder = SCHEMAS / f"v{version}-local-strict"
    definitions = Resource.from_contents(json.loads((folder / "_definitions.json").read_text()), default_specification=DRAFT202012)
    return folder, Registry().with_resource("/api/_definitions.json", definitions)


def check_core(name, value, where, version):
    """A class of Kubernetes itself: V1Container -> container-v1.json."""
    folder, registry = schemas(version)
    schema = json.loads((folder / f"{name[2:].lower()}-v1.json").read_text())
    for error in jsonschema.Draft202012Validator(schema, registry=registry).iter_errors(value):
        yield f"{where}.{'.'.join(map(str, error.path))}: {error.message}"


def check(kind, value, where, version):
    """Yields one text per fault."""
    if match := re.fullmatch(r"list\[(.*)\]", kind):
        if not isinstance(value, list):
            yield f"{where}: a list is wanted, found {value!r}"
            return
        for i, item in enumerate(value):
            yield from check(match[1], item, f"{where}[{i}]", version)
    elif match := re.fullmatch(r"dict\(str, (.*)\)", kind):
        for key, item in value.items():
            yield from check(match[1], item, f"{where}.{key}", version)
    elif kind in PLAIN:
        if not isinstance(value, PLAIN[kind]) or (kind == "int" and isinstance(value, bool)):
            yield f"{where}: {kind} is wanted, found {value!r}"
    elif re.match(r"V1[A-Z]", kind):
        yield from check_core(kind, value, where, version)
    elif kind != "object":
        fields = describe(kind)
        for key, item in value.items():
            if key in fields:
                yield from check(fields[key], item, f"{where}.{key}", version)
            else:
                yield f"{where}.{key}: no such field of {kind}"
