"""Client for the metrics and probes of a running controller."""

import httpx
from prometheus_client.parser import text_string_to_metric_families


class Scrape:
    """Samples of one answer of /metrics."""

    def __init__(self, text: str) -> None:
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self._samples = [sample for family in self.families.values() for sample in family.samples]

    def __call__(self, name: str, **labels: str) -> float | None:
        """Return the sum of the samples with these labels; None where there is none."""
        found = [one.value for one in self._samples if one.name == name and labels.items() <= one.labels.items()]
        return sum(found) if found else None

    def labels(self, name: str, label: str) -> set[str]:
        """Return the values of a label."""
        return {one.labels[label] for one in self._samples if one.name == name}

    @property
    def names(self) -> dict[str, set[str]]:
        """The names of all samples, each with its labels."""
        found: dict[str, set[str]] = {}
        for one in self._samples:
            found.setdefault(one.name, set()).update(one.labels)
        return found


async def ask(address: str, path: str) -> httpx.Response:
    """Return the answer to one request."""
    async with httpx.AsyncClient(base_url=address, trust_env=False) as client:
        return await client.get(path)


async def scrape(address: str) -> Scrape:
    """Ask for all metrics."""
    return Scrape((await ask(address, "/metrics")).text)
