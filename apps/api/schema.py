"""How clients authenticate, and the errors that every operation may answer, for the schema."""

from __future__ import annotations

from typing import Any, Final, Literal

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from rest_framework import serializers

#: Status -> what it means, for reading and for acting.
READING: Final = {
    400: "A parameter is wrong.",
    401: "No token or session, or a token that is unknown, expired or revoked.",
    403: "The caller's roles, or the token's permissions, do not allow it.",
}
ACTING: Final = {
    400: "The body or a parameter is wrong; `errors` names the fields.",
    409: "The state has moved on or forbids it; `params` holds what is true now.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    422: "Understood, but it cannot be done; `code` says why.",
    503: "The backend cannot be read; nothing was changed.",
}
#: Every error answer is one of these, listed or not.
OTHER: Final = "Another error."


class ProblemSerializer(serializers.Serializer[Any]):
    """RFC 9457. `code` is stable; `detail` says what was wrong and what to do."""

    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField()
    code = serializers.CharField()
    detail = serializers.CharField()
    params = serializers.DictField(required=False, help_text="facts of the refusal")
    errors = serializers.DictField(  # type: ignore[assignment]  # a field, not the property
        required=False, help_text="field -> messages"
    )
    permission = serializers.CharField(required=False)


class ApiSchema(AutoSchema):
    """Adds the problem details to every operation."""

    def _get_response_bodies(
        self, direction: Literal["request", "response"] = "response"
    ) -> dict[str, Any]:
        bodies: dict[str, Any] = super()._get_response_bodies(direction)
        reference = self.resolve_serializer(ProblemSerializer, "response").ref
        meaning: dict[Any, str] = dict(READING)
        if self.method in ("POST", "PATCH", "DELETE"):
            meaning |= ACTING
        if "{" in self.path or self.method == "POST":
            meaning[404] = "There is no such object, or the caller may not see it."
        for status in sorted(meaning):
            bodies.setdefault(str(status), _body(meaning[status], reference))
        bodies.setdefault("default", _body(OTHER, reference))
        return bodies


def _body(description: str, reference: dict[str, Any]) -> dict[str, Any]:
    return {
        "description": description,
        "content": {"application/problem+json": {"schema": reference}},
    }


class BearerScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "apps.api.authentication.BearerTokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "bearerFormat": "ful_<id>.<secret>"}


class SessionScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "apps.api.authentication.BrowserSessionAuthentication"
    name = "session"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "apiKey", "in": "cookie", "name": "sessionid"}
