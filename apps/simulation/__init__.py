"""Service-time model, request traces and the demo fleet. No ORM and no Django in this room."""
