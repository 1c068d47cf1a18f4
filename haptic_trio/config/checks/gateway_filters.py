"""Check of the filters that routes of the Gateway API may name."""

from collections.abc import Iterator, Mapping

from haptic_trio.config.model import Config
from haptic_trio.errors import Problem
from haptic_trio.gateway.extensions import SNIPPETS
from haptic_trio.yaml.paths import key_path


def check_gateway_filters(config: Config) -> Iterator[Problem]:
    """Yield a problem for each filter of the setting `gatewayFilters` that has no snippet."""
    listed = config.templating.extra_context.get("gatewayFilters")
    if "gateway" not in config.templating.libraries or not isinstance(listed, Mapping):
        return
    snippets = config.template_snippets
    known = sorted({name.removeprefix(one) for one in SNIPPETS for name in snippets if name.startswith(one)})
    for name in listed:
        if name not in known:
            yield Problem(
                message=f"the filter {name!r} has no snippet",
                path=key_path("templating.extraContext.gatewayFilters", str(name)),
                hint=f"add templateSnippets.{SNIPPETS[0]}{name}, or name one of: {', '.join(known)}",
            )
