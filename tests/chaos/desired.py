"""Desired state of an experiment: apps, random changes of them, and the answers that HAProxy may give."""

import random
from base64 import b64encode
from typing import Any, Final

import trustme
from cryptography import x509

from tests.features.harness import Site, ingress, service

SERVERS: Final = 3
CERTIFICATES: Final = 3
EXTRA_HOSTS: Final = 6


class App:
    """A host with a Service, an Ingress, and a certificate."""

    def __init__(self, number: int, ports: list[int], authority: trustme.CA) -> None:
        self.name = f"app-{number}"
        self.host = f"{self.name}.localhost"
        self.ports = ports
        """Of the servers that may be endpoints."""
        self.present = frozenset({0})
        """The endpoints now."""
        self.servers = self.present
        """The endpoints that may answer."""
        self.certificate = 0
        self.certificates = frozenset({0})
        self._issued = [authority.issue_cert(self.host) for _ in range(CERTIFICATES)]
        self._serials = {
            x509.load_pem_x509_certificate(issued.cert_chain_pems[0].bytes()).serial_number: index
            for index, issued in enumerate(self._issued)
        }

    @property
    def desired_ports(self) -> set[int]:
        """The ports of the present endpoints."""
        return {self.ports[index] for index in self.present}

    def serial_of(self, der: bytes) -> int:
        """Return the number of a certificate; -1 for that of another app."""
        return self._serials.get(x509.load_der_x509_certificate(der).serial_number, -1)

    def write(self, site: Site) -> None:
        """Write all objects."""
        self.write_endpoints(site)
        self.write_certificate(site)
        host = ingress(self.name, self.host, self.name)
        host["spec"]["tls"] = [{"hosts": [self.host], "secretName": self.name}]
        site.write(f"ingress-{self.name}", host)

    def write_endpoints(self, site: Site) -> None:
        """Write the Service and an EndpointSlice for each endpoint."""
        site.write(f"service-{self.name}", *service(self.name, *sorted(self.desired_ports)))

    def write_certificate(self, site: Site) -> None:
        """Write the Secret."""
        issued = self._issued[self.certificate]
        secret: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/tls",
            "metadata": {"name": self.name, "namespace": "default"},
            "data": {
                "tls.crt": b64encode(b"".join(part.bytes() for part in issued.cert_chain_pems)).decode(),
                "tls.key": b64encode(issued.private_key_pem.bytes()).decode(),
            },
        }
        site.write(f"secret-{self.name}", secret)


class Desired:
    """All apps, and random changes of them."""

    def __init__(self, apps: list[App], site: Site, config: dict[str, Any], rng: random.Random) -> None:
        self.apps = apps
        self.changes = 0
        self._site = site
        self._config = config
        self._rng = rng
        self._extra: set[int] = set()
        self._reloads = 0

    def write(self) -> None:
        """Write everything."""
        self.write_config()
        self._site.write_class()
        for app in self.apps:
            app.write(self._site)
        for number in self._extra:
            self._write_extra(number)

    def write_config(self) -> None:
        """Write the ConfigMap; another one after each `reload`."""
        # The limit of old processes is in the configuration of HAProxy: another one needs a reload.
        context = {**self._config["templating"]["extraContext"], "hardStopAfter": f"{60 + self._reloads}s"}
        self._site.write_config(**{**self._config, "templating": {"extraContext": context}})

    def reload(self) -> None:
        """Change the configuration so that HAProxy is reloaded."""
        self.changes += 1
        self._reloads = (self._reloads + 1) % 50
        self.write_config()

    def change(self) -> None:
        """Change endpoints, a certificate, or an additional host."""
        app = self._rng.choice(self.apps)
        match self._rng.choices(["endpoints", "certificate", "host"], [6, 1, 2])[0]:
            case "endpoints":
                self.change_endpoints(app)
            case "certificate":
                self.changes += 1
                app.certificate = self._rng.randrange(CERTIFICATES)
                app.certificates |= {app.certificate}
                app.write_certificate(self._site)
            case _:
                self.changes += 1
                number = self._rng.randrange(EXTRA_HOSTS)
                if number in self._extra:
                    self._extra.remove(number)
                    self._site.remove(f"extra-{number}")
                else:
                    self._extra.add(number)
                    self._write_extra(number)

    def change_endpoints(self, app: App) -> None:
        """Give *app* other endpoints."""
        self.changes += 1
        others = [index for index in range(SERVERS) if index not in app.present]
        leaving = self._rng.choice(sorted(app.present))
        if others and (len(app.present) == 1 or self._rng.random() < 0.5):
            app.present |= {self._rng.choice(others)}
            if self._rng.random() < 0.5:
                app.present -= {leaving}
        else:
            app.present -= {leaving}
        app.servers |= app.present
        app.write_endpoints(self._site)

    def _write_extra(self, number: int) -> None:
        app = self.apps[number % len(self.apps)]
        self._site.write(f"extra-{number}", ingress(f"extra-{number}", f"extra-{number}.localhost", app.name))

    def settle_servers(self) -> None:
        """Allow only present endpoints from now on: all instances have them."""
        for app in self.apps:
            app.servers = app.present

    def settle_certificates(self) -> None:
        """Allow only present certificates from now on."""
        for app in self.apps:
            app.certificates = frozenset({app.certificate})

    def unsettle(self) -> None:
        """Allow all endpoints and certificates: an older configuration may be served for a time."""
        for app in self.apps:
            app.servers = frozenset(range(SERVERS))
            app.certificates = frozenset(range(CERTIFICATES))
