from django.apps import AppConfig


class SloConfig(AppConfig):
    name = "apps.slo"
    label = "slo"
