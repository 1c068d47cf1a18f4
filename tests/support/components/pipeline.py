"""Render and validate, as one iteration does, over stores that the test fills."""

from pathlib import Path
from typing import Any

import msgspec

from haptic_trio.channels import EventBuffer
from haptic_trio.config.load import load_config
from haptic_trio.config.model import Config
from haptic_trio.k8s.resource import Resource
from haptic_trio.k8s.store import Store, Stores
from haptic_trio.messages import ConfigValidated
from haptic_trio.pipeline.cycle import Pipeline
from haptic_trio.pipeline.rejection.quarantine import Quarantine
from haptic_trio.pipeline.render import Renderer
from haptic_trio.pipeline.review.dry_run import DryRuns
from haptic_trio.pipeline.validate import Validator
from tests.support.components.controller import config_map
from tests.support.messages import drain

HEAD = """\
global
    maxconn 10
defaults
    mode http
    timeout connect 1s
    timeout client 1s
    timeout server 1s
frontend http
    bind 127.0.0.1:1
"""
"""The part of a haproxy.cfg that any HAProxy takes, for templates to go on with."""


def config_of(template: str, **fields: Any) -> Config:
    """Return a configuration without libraries that watches Services, with *template* for haproxy.cfg."""
    return load_config(config_map(haproxyConfig={"template": template}, **fields), None).config


def stores_of(config: Config) -> Stores:
    """Return empty stores for what *config* watches."""
    return Stores(Store(name, watched.index_by) for name, watched in config.watched_resources.items())


class Bench:
    """A pipeline with its stores."""

    def __init__(self, binary: Path, template: str, **fields: Any) -> None:
        self._binary = binary
        self.events = EventBuffer()
        self.quarantine = Quarantine()
        self.configure(template, **fields)

    def configure(self, template: str, **fields: Any) -> None:
        """Begin another iteration, with the objects of the former one."""
        objects = list(self.services.list()) if hasattr(self, "stores") else []
        config = config_of(template, **fields)
        self.stores = stores_of(config)
        self.put(*objects)
        self.quarantine = self.quarantine.successor(config.templating.extra_context)
        self.renderer = Renderer(config)
        self.validator = Validator(self._binary, check_timeout=config.validation.check_timeout)
        self.pipeline = Pipeline(self.stores, self.renderer, self.validator, self.quarantine, self.events)
        self._cycles = 0

    @property
    def services(self) -> Store:
        """The store of Services."""
        return self.stores["services"]

    def put(self, *resources: Resource) -> None:
        """Write Services."""
        for resource in resources:
            self.services.upsert(resource)

    async def run(self) -> ConfigValidated:
        """Run one cycle; its correlation ids are c1, c2 and so on."""
        self._cycles += 1
        return await self.pipeline.run(f"c{self._cycles}")

    def dry_runs(self, scratch: Path) -> DryRuns:
        """Return the dry runs beside this pipeline, with their files below *scratch*."""
        return DryRuns(
            self.stores,
            self.renderer,
            self.validator,
            self.quarantine,
            pipeline=self.pipeline,
            binary=self._binary,
            scratch=scratch,
        )

    def reported(self) -> list[msgspec.Struct]:
        """Return the events since the last call."""
        return drain(self.events)
