"""Presenters: from read models to ready text and geometry. Plain Python; templates only print."""
