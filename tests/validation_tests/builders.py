"""Configurations with tests in them, as small as a test wants to see them."""

from textwrap import dedent, indent
from typing import Any

import msgspec
import trio

from haptic_trio.config.load import LoadedConfig, load_config
from haptic_trio.dataplane.binary import find_haproxy
from haptic_trio.validation_tests.cases import find_cases
from haptic_trio.validation_tests.gate import suite_of
from haptic_trio.validation_tests.results import CaseResult
from haptic_trio.validation_tests.runner import Runner, RunOptions

SITES = """\
templating: {libraries: [], extraContext: {greeting: hello}}
watchedResources:
  sites: {apiVersion: example.org/v1, resources: sites}
  sitesByHost: {apiVersion: example.org/v1, resources: sites, indexBy: [spec.host]}
maps:
  host.map:
    template: |
      {% each site in resources.sites as "host" %}
      {{ site.spec.host | hostname }} {{ ident(site.metadata.name) }}
      {% endeach %}
haproxyConfig:
  template: |
    global
        maxconn 100

    defaults plain
        mode http
        timeout connect 5s
        timeout client 5s
        timeout server 5s

    frontend web from plain
        bind *:8080
        http-response set-header X-Greeting {{ greeting | word }}
        http-request return status 204 if { path /self }
        use_backend %[req.hdr(host),map_str(maps/host.map)]

    {% each site in resources.sites as "backend" %}
    backend {{ ident(site.metadata.name) }} from plain
    {% if site.spec.address is defined %}
        server one {{ site.spec.address | address }}:80
    {% endif %}

    {% endeach %}
"""
WEB = {"kind": "Site", "metadata": {"name": "web"}, "spec": {"host": "web.example.com", "address": "10.0.0.1"}}
API = {"kind": "Site", "metadata": {"name": "api"}, "spec": {"host": "api.example.com", "address": "10.0.0.2"}}
BAD = {"kind": "Site", "metadata": {"name": "bad"}, "spec": {"host": "a b"}}


def config_map(tests: str, *, version: str = "1", base: str = SITES) -> dict[str, Any]:
    """Return the ConfigMap of a small configuration with *tests* (YAML of `validationTests`)."""
    text = base + "validationTests:\n" + indent(dedent(tests), "  ")
    metadata = {"name": "haptic-trio", "namespace": "default", "resourceVersion": version}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"config": text}}


def load(tests: str, *, base: str = SITES) -> LoadedConfig:
    """Return the configuration of `config_map`."""
    return load_config(config_map(tests, base=base), None)


def loaded_with(assertions: list[dict[str, Any]], **test: Any) -> LoadedConfig:
    """Return a configuration with one test, `it`, over the sites web and api."""
    given = {"fixtures": {"sites": [WEB, API]}, **test, "assertions": assertions}
    return load(f"it: {msgspec.json.encode(given).decode()}")


def run(loaded: LoadedConfig, *, with_haproxy: bool = False) -> list[CaseResult]:
    """Return what comes of the tests in *loaded*."""
    binary = find_haproxy() if with_haproxy else None
    runner = Runner(RunOptions(binary=binary))
    return trio.run(runner.run, find_cases([suite_of(loaded)]), lambda _result: None)
