"""The schema is whole and valid, and what the API answers is what the schema says."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator
from functools import cache
from io import StringIO
from typing import Any

import pytest
import schemathesis
import yaml
from django.core.management import call_command
from django.core.wsgi import get_wsgi_application
from django.test import Client
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import not_a_server_error
from schemathesis.generation.modes import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
)

from apps.api.docs import written
from apps.api.urls import ENDPOINTS
from apps.common.measurement import State
from tests.integration.api.lab import SLUG, TARGETS, Lab, everything, undone

CHECKS = [not_a_server_error, content_type_conformance, response_schema_conformance]
EXAMPLES = 15
#: Parameter of a detail address -> endpoint whose object stands in for it.
KEYS = re.compile(r"^/api/v1/([\w-]+)/\{(\w+)\}/")


def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(written("application/json"))
    return found


def test_the_schema_has_no_warnings() -> None:
    out, errors = StringIO(), StringIO()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call_command("spectacular", "--validate", "--fail-on-warn", stdout=out, stderr=errors)
    assert errors.getvalue() == ""
    assert yaml.safe_load(out.getvalue()) == document(), "the served schema is the snapshot's"


def test_every_operation_is_described() -> None:
    paths = document()["paths"]
    assert {path.split("/")[3] for path in paths} == set(ENDPOINTS)
    for path, operations in paths.items():
        for method, operation in operations.items():
            where = f"{method} {path}"
            assert operation["security"] == [{"token": []}, {"session": []}], where
            assert "default" in operation["responses"], where
            for parameter in operation.get("parameters", []):
                if parameter["in"] == "path":
                    assert parameter["schema"].get("type"), where
            errors = [s for s in operation["responses"] if s == "default" or s >= "400"]
            for status in errors:
                content = operation["responses"][status]["content"]
                assert list(content) == ["application/problem+json"], where
            body = operation["responses"].get("200", {}).get("content", {})
            if method == "get" and "{" not in path:
                page = body["application/json"]["schema"]["$ref"].rsplit("/", 1)[1]
                schema = document()["components"]["schemas"][page]
                assert schema["required"] == ["results", "next", "previous"], where


def test_the_states_of_a_figure_are_the_enum() -> None:
    schemas = document()["components"]["schemas"]
    reference = schemas["Measurement"]["properties"]["state"]["$ref"].rsplit("/", 1)[1]
    assert set(schemas[reference]["enum"]) == {state.value for state in State}


@cache
def schema() -> Any:
    return schemathesis.openapi.from_wsgi("/api/openapi.yaml", get_wsgi_application())


def operations(method: str) -> Iterator[Any]:
    for result in schema().get_all_operations():
        operation = result.ok()
        if operation.method.upper() == method:
            yield operation


def headers(lab: Lab, caller: str = "read_only") -> dict[str, str]:
    return {"Authorization": f"Bearer {lab.tokens[caller]}"}


def real_key(lab: Lab, path: str) -> dict[str, str]:
    found = KEYS.match(path)
    return {found[2]: lab.numbers[found[1]]} if found else {}


def conforms(case: Any, answer: Any) -> None:
    """The checks, and a success is one that the operation lists; `default` stands for errors."""
    case.validate_response(answer, checks=CHECKS)
    listed = case.operation.definition.raw["responses"]
    where = f"{case.operation.label} answered {answer.status_code}"
    assert answer.status_code >= 400 or str(answer.status_code) in listed, where


def test_answers_to_generated_requests_conform(lab: Lab) -> None:
    """Positive and negative parameters on every reading address, with a token that only reads."""
    before = everything()
    seen: set[int] = set()
    for operation in operations("GET"):
        for mode, examples in ((GenerationMode.POSITIVE, EXAMPLES), (GenerationMode.NEGATIVE, 4)):
            keys = real_key(lab, operation.path) if mode is GenerationMode.POSITIVE else {}

            @settings(
                max_examples=examples,
                database=None,
                deadline=None,
                derandomize=True,
                suppress_health_check=list(HealthCheck),
            )
            @given(case=operation.as_strategy(generation_mode=mode, path_parameters=keys or None))
            def run(case: Any) -> None:
                answer = case.call(headers=headers(lab))
                conforms(case, answer)
                seen.add(answer.status_code)

            try:
                run()
            except Unsatisfiable:
                # Nothing to be wrong about: no parameter, or any text is a right one.
                assert mode is GenerationMode.NEGATIVE, operation.label
    assert {200, 400, 403} <= seen
    assert everything() == before


def test_every_reading_address_answers_as_described(lab: Lab) -> None:
    """Without parameters and with the real object: each must be a 200 of its schema."""
    for operation in operations("GET"):
        case = operation.Case(path_parameters=real_key(lab, operation.path))
        answer = case.call(headers=headers(lab, "operator"))
        assert answer.status_code == 200, (operation.path, answer.text)
        conforms(case, answer)
        assert "NaN" not in answer.text


def test_the_figures_of_a_living_deployment_are_there(lab: Lab) -> None:
    def get(path: str) -> Any:
        return Client().get(f"/api/v1/{path}", headers=headers(lab, "viewer")).json()

    summary = get(f"deployments/{SLUG}/summary/")
    assert {figure["code"] for figure in summary["figures"]} >= {"ttft_p95", "tpot_p95", "goodput"}
    assert summary["gpus"] == "6.0000"
    assert summary["cost"]["total_per_hour"]["value"] == "27.540000"
    assert get(f"costs/?deployment={SLUG}")["results"][0]["cost"] == summary["cost"]
    diagnosis = get(f"deployments/{SLUG}/diagnosis/")
    assert diagnosis["cause"] == "prefill_saturated"
    assert diagnosis["evidence"][0]["measurement"]["state"] in {state.value for state in State}


def test_series_come_as_plotly_figures_too(lab: Lab) -> None:
    path = f"/api/v1/deployments/{SLUG}/series/?panels=ttft,busy,queue"
    plain = lab.call("viewer", "GET", path).json()
    answer = lab.call("viewer", "GET", f"{path}&format=plotly")
    assert answer["Content-Type"] == "application/vnd.plotly.v1+json"
    figures = answer.json()
    assert set(figures) == set(plain["panels"]) == {"ttft", "busy", "queue"}
    lines = {line["name"]: line for line in figures["busy"]["data"]}
    assert lines["prefill"]["y"] == plain["panels"]["busy"]["prefill"]
    assert len(lines["prefill"]["x"]) == plain["n"]
    assert any(value is not None for value in lines["prefill"]["y"]), "evaluations are in it"
    assert lab.call("viewer", "GET", f"{path}&format=xml").status_code == 404


def test_answers_to_acts_conform(lab: Lab) -> None:
    """Each unsafe address once as it should be called, and once with nothing."""
    wanted = {"deployment": SLUG, "targets": TARGETS, "expected_revision": lab.revision}
    advised = lab.numbers["recommendations"]
    with undone():
        dry = lab.call("operator", "POST", "/api/v1/commands/", wanted | {"dry_run": True}).json()
    assert dry["predicted"]["ttft_p95"]["place"] == "model"
    made = lab.propose()
    calls: dict[tuple[str, str], tuple[str, str, Any, int]] = {
        ("POST", "/api/v1/kill-switch/"): ("operator", "", {"deployment": SLUG, "on": True}, 200),
        ("POST", "/api/v1/commands/{number}/approve/"): (
            "approver", made.number, {"plan_hash": made.plan_hash}, 200,
        ),
        ("POST", "/api/v1/commands/{number}/reject/"): ("approver", made.number, {}, 200),
        ("POST", "/api/v1/commands/{number}/cancel/"): ("operator", made.number, {}, 200),
        ("POST", "/api/v1/commands/"): ("operator", "", wanted | {"dry_run": True}, 200),
        ("POST", "/api/v1/commands/{number}/rollback/"): (
            "operator", made.number, {}, 409,
        ),
        ("POST", "/api/v1/recommendations/{number}/dismiss/"): ("operator", advised, {}, 200),
        ("POST", "/api/v1/tokens/"): ("operator", "", {}, 403),
        ("POST", "/api/v1/sources/"): ("admin", "", {"cluster": "lab", "kind": "scrape"}, 201),
        ("POST", "/api/v1/sources/test/"): ("admin", "", {"url": "http://169.254.1.1/"}, 200),
        ("POST", "/api/v1/sources/find/"): ("admin", "", {"url": "http://169.254.1.1/"}, 422),
        ("PATCH", "/api/v1/sources/{id}/"): (
            "admin", lab.numbers["sources"], {"interval_s": 30}, 200,
        ),
        ("DELETE", "/api/v1/tokens/{id}/"): ("read_only", lab.numbers["tokens"], None, 204),
    }  # fmt: skip
    reached = set()
    for method in ("POST", "PATCH", "DELETE"):
        for operation in operations(method):
            caller, key, body, expected = calls[method, operation.path]
            reached.add((method, operation.path))
            name = "id" if "{id}" in operation.path else "number"
            parts = {"path_parameters": {name: key} if key else {}}
            for sent, status in ((body, expected), ({}, None)):
                more = (
                    {} if method == "DELETE" else {"body": sent, "media_type": "application/json"}
                )
                case = operation.Case(**parts, **more)
                with undone():
                    answer = case.call(headers=headers(lab, caller))
                    assert status in (None, answer.status_code), (operation.path, answer.text)
                    conforms(case, answer)
    assert reached == set(calls), "an unsafe address without a call here"


def test_a_new_command_conforms(lab: Lab) -> None:
    operation = next(o for o in operations("POST") if o.path == "/api/v1/commands/")
    body = {"recommendation": lab.numbers["recommendations"]}
    case = operation.Case(body=body, media_type="application/json")
    answer = case.call(headers=headers(lab, "operator"))
    assert answer.status_code == 201, answer.text
    assert answer.json()["predicted"]["ttft_p95"]["upper"] is not None
    conforms(case, answer)


@pytest.mark.parametrize("accept", ["application/json", "*/*"])
def test_the_schema_is_served_in_both_forms(accept: str) -> None:
    answer = Client().get("/api/openapi.yaml", headers={"Accept": accept})
    assert answer.status_code == 200
    assert yaml.safe_load(answer.content)["info"]["title"] == "Fulcrum API"
    assert "Accept" in answer["Vary"]
