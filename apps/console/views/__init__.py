"""Views: parse, call one selector or service, render."""
