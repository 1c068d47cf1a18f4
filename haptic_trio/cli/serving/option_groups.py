"""Help of `serve`: its options in groups."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

GROUPS = {
    "Cluster and configuration": (
        *("--manifests", "--kubeconfig", "--context", "--in-cluster", "--namespace", "--config-map", "--secret"),
    ),
    "HAProxy on this machine": ("--instances", "--on-exit", "--state-dir", "--haproxy"),
    "HAProxy elsewhere": (
        *("--agent", "--pods", "--agent-ca", "--agent-cert", "--agent-key", "--agent-server-name"),
        *("--dataplane", "--dataplane-ca"),
    ),
    "Addresses in the status of Ingresses": ("--publish-service", "--publish-nodes", "--publish-address"),
    "Health, metrics, console and traces": (
        *("--listen", "--console", "--console-host", "--console-token-file", "--otlp-endpoint"),
    ),
    "Admission webhook": (
        *("--webhook-listen", "--webhook-cert", "--webhook-key", "--webhook-client-ca", "--webhook-client"),
    ),
    "Log": ("--log-format", "--log-level"),
}
"""Options in the help, by title."""


class GroupedCommand(click.Command):
    """A command whose help lists the options below the titles of *groups*, which name them; others come last."""

    def __init__(self, *arguments: Any, groups: Mapping[str, Sequence[str]], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.groups = groups

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each group as a section."""
        rows = {
            parameter.opts[0]: row
            for parameter in self.get_params(ctx)
            if (row := parameter.get_help_record(ctx)) is not None
        }
        listed = {title: [rows.pop(name) for name in names] for title, names in self.groups.items()}
        for title, section in {**listed, "Other options": [*rows.values()]}.items():
            if section:
                with formatter.section(title):
                    formatter.write_dl(section)
