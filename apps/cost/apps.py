from django.apps import AppConfig


class CostConfig(AppConfig):
    name = "apps.cost"
    label = "cost"
