"""A decimal column that keeps every digit on SQLite too (DESIGN §4a: decimals as text)."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ValidationError
from django.db import models

if TYPE_CHECKING:
    TextColumn = models.CharField[Decimal, Decimal]
else:
    TextColumn = models.CharField


class ExactDecimalField(TextColumn):
    """Decimal in Python, canonical text in the database. Refuses floats and non-finite numbers."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("max_length", 48)
        super().__init__(*args, **kwargs)

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Decimal | None:
        return None if value is None else Decimal(value)

    def to_python(self, value: Any) -> Any:
        if value is None or isinstance(value, Decimal):
            return value
        if isinstance(value, float):
            raise ValidationError("a float is not exact; give a Decimal or text")
        try:
            return Decimal(str(value))
        except InvalidOperation as error:
            raise ValidationError(f"not a decimal number: {value!r}") from error

    def get_prep_value(self, value: Any) -> Any:
        number = self.to_python(value)
        if number is None:
            return None
        if not number.is_finite():
            raise ValidationError("not a finite number")
        return format(number, "f")
