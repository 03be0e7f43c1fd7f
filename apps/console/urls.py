"""Addresses of the console. Every one ends in a slash, except those for machines."""

from __future__ import annotations

from django.urls import URLPattern, path

from .views import actions, connect, gallery, health, metrics, pages, people

urlpatterns: list[URLPattern] = [
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("metrics", metrics.metrics, name="metrics"),
    path("", pages.home, name="home"),
    path("signin/", people.sign_in, name="account_login"),
    path("signout/", people.sign_out, name="account_logout"),
    path("fleet/", pages.fleet, name="fleet"),
    path("fleet/live/", pages.fleet_live, name="fleet-live"),
    path("deployments/", pages.deployments, name="deployments"),
    path("fleet/list/live/", pages.deployments_live, name="deployments-live"),
    path("deployments/<slug:slug>/", pages.deployment, name="deployment"),
    path(
        "deployments/<slug:slug>/blocks/<slug:block>/",
        pages.deployment_block,
        name="deployment-block",
    ),
    path("connect/", connect.start, name="connect"),
    path("connect/<slug:step>/", connect.step, name="connect-step"),
    path("search/", pages.search, name="search"),
    path("recommendations/<str:number>/", pages.review, name="review"),
    path("recommendations/<str:number>/apply/", actions.apply, name="review-apply"),
    path("recommendations/<str:number>/dismiss/", actions.dismiss, name="review-dismiss"),
    path("commands/", pages.commands, name="commands"),
    path("commands/<str:number>/", pages.command, name="command"),
    path("commands/<str:number>/live/", pages.command_live, name="command-live"),
    path("commands/<str:number>/approve/", actions.approve, name="command-approve"),
    path("commands/<str:number>/reject/", actions.reject, name="command-reject"),
    path("commands/<str:number>/cancel/", actions.cancel, name="command-cancel"),
    path("commands/<str:number>/rollback/", actions.rollback, name="command-rollback"),
    path("kill-switch/<slug:slug>/", actions.kill_switch, name="kill-switch"),
    path("preferences/", people.page, name="preferences"),
    path("preferences/language/", people.language, name="preference-language"),
    path("preferences/theme/", people.theme, name="preference-theme"),
    path("preferences/time-zone/", people.time_zone, name="preference-time-zone"),
    path("preferences/keys/", people.keys, name="preference-keys"),
    path("design/", gallery.design, name="design"),
]
