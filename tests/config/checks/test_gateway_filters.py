"""Filters that routes may name are checked when a configuration is loaded."""

from haptic_trio.config.checks.gateway_filters import check_gateway_filters
from haptic_trio.config.model import Config, Snippet, TemplatingConfig


def config(*snippets: str, **listed: list[str]) -> Config:
    return Config(
        templating=TemplatingConfig(libraries=("base", "ssl", "gateway"), extra_context={"gatewayFilters": listed}),
        template_snippets={f"gateway-filter-{name}": Snippet(template="") for name in snippets},
    )


def test_a_listed_filter_without_a_snippet_is_reported_with_the_fix() -> None:
    [problem] = check_gateway_filters(config("sign-in", "limit", **{"limit": ["*"], "sing-in": ["shop"]}))

    assert problem.path == "templating.extraContext.gatewayFilters.sing-in"
    assert problem.message == "the filter 'sing-in' has no snippet"
    assert problem.hint == "add templateSnippets.gateway-filter-sing-in, or name one of: limit, sign-in"


def test_filters_with_snippets_and_configurations_without_filters_are_fine() -> None:
    assert list(check_gateway_filters(config("limit", limit=["*"]))) == []
    assert list(check_gateway_filters(config("limit"))) == []
    assert list(check_gateway_filters(Config())) == []
