from haptic_trio.haproxy.config.parser import parse_config
from haptic_trio.validation_tests.live.isolation import Bind, Isolation


def isolate(text: str, *, sockets: int = 0) -> tuple[Isolation, str]:
    isolation = Isolation(parse_config(text, source="x"))
    assert len(isolation.binds) == sockets
    return isolation, isolation.write([7 + number for number in range(sockets)], 9999)


def test_every_bind_becomes_an_inherited_socket_with_the_proxy_protocol() -> None:
    isolation, text = isolate(
        "frontend a\n    bind *:80 v4v6 name x\n    bind [::]:443,10.0.0.1:8443 ssl crt x.pem interface eth0 alpn h2\n"
        "    bind unix@/run/x.sock mode 600\nlisten b\n    bind :8000-8010\n",
        sockets=5,
    )

    assert isolation.binds == [
        Bind("a", 80, False),
        Bind("a", 443, True),
        Bind("a", 8443, True),
        Bind("a", 0, False),
        Bind("b", 8000, False),
    ]
    assert [line.strip() for line in text.splitlines() if "bind" in line] == [
        "bind fd@7 accept-proxy name x",
        "bind fd@8 accept-proxy ssl crt x.pem alpn h2",
        "bind fd@9 accept-proxy ssl crt x.pem alpn h2",
        "bind fd@10 accept-proxy",
        "bind fd@11 accept-proxy",
    ]


def test_every_server_becomes_the_echo_server_with_its_own_source_address() -> None:
    isolation, text = isolate(
        "backend a\n    default-server check inter 2s ssl verify required ca-file x.pem\n"
        "    server one 10.0.0.1:80 weight 5 check port 81 source 10.9.9.9 usesrc clientip\n"
        "    server two www.example.com:443 ssl verify required ca-file x.pem resolvers dns\n"
        "backend b\n    server-template pod 3 pods.example.com:80 resolvers dns\n"
    )

    assert [(one.backend, one.name, one.endpoint) for one in isolation.servers] == [
        ("a", "one", "10.0.0.1:80"),
        ("a", "two", "www.example.com:443"),
        ("b", "pod1", "pods.example.com:80"),
    ]
    assert len({one.source for one in isolation.servers}) == 3
    assert [line.strip() for line in text.splitlines() if "server" in line] == [
        "default-server inter 2s ssl",
        "server one 127.0.0.1:9999 weight 5 verify none source 127.1.0.1",
        "server two 127.0.0.1:9999 ssl verify none source 127.1.0.2",
        "server pod1 127.0.0.1:9999 verify none source 127.1.0.3",
    ]


def test_nothing_reaches_out_or_touches_the_process() -> None:
    _, text = isolate(
        "global\n    user haproxy\n    daemon\n    chroot /var/empty\n    log 10.0.0.1 local0\n    maxconn 999999\n"
        "    stats socket /run/x.sock\n    pidfile /run/x.pid\n    tune.bufsize 32768\n"
        "defaults\n    log global\n    log 10.0.0.2 local0\n    email-alert mailers m\n"
        "peers p\n    peer one 10.0.0.3:1024\n    table t type ip size 1k\n"
        "resolvers dns\n    nameserver a 10.0.0.4:53\n    hold valid 10s\n"
        "mailers m\n    mailer one 10.0.0.5:25\n"
        "ring r\n    server log 10.0.0.6:514\n"
    )

    assert "10.0.0." not in text
    assert "/run" not in text
    assert [line.strip() for line in text.splitlines()] == [
        "global", "tune.bufsize 32768", "defaults", "log global", "peers p", "table t type ip size 1k",
        "peer isolated 127.0.0.1:1", "resolvers dns", "hold valid 10s", "mailers m",
    ]  # fmt: skip


def test_all_other_lines_stay_as_they_are() -> None:
    lines = (
        "frontend a\n    http-request set-header X-Y 'a b' if { path /x }\n    use_backend %[var(txn.b)]\n"
        '    http-request return status 200 content-type text/plain string "it\'s"\n'
    )
    _, text = isolate(lines)

    assert parse_config(text).digest == parse_config(lines).digest
