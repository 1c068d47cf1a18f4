"""Keywords that `haproxy -dKall` of version 2.8 does not list: built into its section parsers, or added later.

Only names and argument counts; `haptic_trio.haproxy.keywords` joins them
with the listing.
"""

from collections.abc import Mapping
from typing import Final

PROXY_KINDS: Final = ("defaults", "frontend", "backend", "listen")

_GLOBAL: Final = """
anonkey busy-polling chroot cluster-secret cpu-map daemon description expose-experimental-directives external-check
fd-hard-limit gid group h2-workaround-bogus-websocket-clients insecure-fork-wanted insecure-setuid-wanted limited-quic
localpeer log log-send-hostname log-tag master-worker max-spread-checks maxcompcpuusage maxcomprate maxconn maxconnrate
maxpipes maxsessrate maxsslrate maxzlibmem nbproc no-quic node noepoll noevports nogetaddrinfo nokqueue nopoll
noreuseport nosplice numa-cpu-mapping pidfile presetenv quick-exit quiet resetenv server-state-base server-state-file
set-dumpable setenv spread-checks ssl-engine ssl-server-verify strict-limits uid ulimit-n unix-bind unsetenv user
zero-warning wurfl-data-file wurfl-information-list wurfl-information-list-separator wurfl-patch-file wurfl-cache-size
deviceatlas-json-file deviceatlas-log-level deviceatlas-separator deviceatlas-properties-cookie 51degrees-data-file
51degrees-property-name-list 51degrees-property-separator 51degrees-cache-size
tune.buffers.limit tune.buffers.reserve tune.bufsize tune.chksize tune.comp.maxlevel tune.disable-fast-forward
tune.http.cookielen tune.http.logurilen tune.http.maxhdr tune.idletimer tune.maxaccept tune.maxpollevents
tune.maxrewrite tune.pattern.cache-size tune.pipesize tune.rcvbuf.client tune.rcvbuf.server tune.recv_enough
tune.runqueue-depth tune.sndbuf.client tune.sndbuf.server
acme.scheduler cpu-affinity cpu-policy cpu-set dns-accept-family expose-deprecated-directives force-cfg-parser-pause
h1-do-not-close-on-insecure-transfer-encoding key-base max-threads-per-group ocsp-update.disable ocsp-update.httpproxy
ocsp-update.maxdelay ocsp-update.mindelay ocsp-update.mode profiling.memory shm-stats-file shm-stats-file-max-objects
ssl-default-server-client-sigalgs ssl-default-server-curves ssl-default-server-sigalgs ssl-passphrase-cmd
ssl-security-level stats-file thread-hard-limit warn-blocked-traffic-after
tune.applet.zero-copy-forwarding tune.bufsize.large tune.bufsize.small tune.disable-zero-copy-forwarding
tune.epoll.mask-events tune.events.max-events-at-once tune.glitches.kill.cpu-usage tune.h1.zero-copy-fwd-recv
tune.h1.zero-copy-fwd-send tune.h2.be.max-frames-at-once tune.h2.be.rxbuf tune.h2.fe.max-frames-at-once
tune.h2.fe.max-rst-at-once tune.h2.fe.rxbuf tune.h2.log-errors tune.h2.zero-copy-fwd-send
tune.lua.bool-sample-conversion tune.max-checks-per-thread tune.max-rules-at-once tune.memory.pool-cache-size
tune.notsent-lowat.client tune.notsent-lowat.server tune.pool.cache-size tune.pt.zero-copy-forwarding
tune.rcvbuf.backend tune.rcvbuf.frontend tune.renice.runtime tune.renice.startup tune.ring.queues tune.sndbuf.backend
tune.sndbuf.frontend tune.takeover-other-tg-connections tune.ssl.keylog tune.ssl.ocsp-update.maxdelay
"""

_PROXY: Final = """
acl appsession backlog balance bind bind-process block capture cliexp cookie default-server default_backend description
disabled dispatch dynamic-cookie-key email-alert enabled error-log-format errorfiles force-persist fullconn grace
hash-balance-factor hash-type http-after-response http-request http-response http-reuse http-send-name-header id
ignore-persist load-server-state-from-file log log-format log-format-sd log-tag max-session-srv-conns maxconn mode
monitor monitor-net monitor-uri option persist redirect redisp redispatch reqadd reqallow reqdel reqdeny reqiallow
reqidel reqideny reqipass reqirep reqitarpit reqpass reqrep reqtarpit retries rspadd rspdel rspdeny rspidel rspideny
rspirep rsprep server server-state-file-name server-template source srvexp stats stick stick-table transparent
unique-id-format unique-id-header use-server use_backend usesrc
filter-sequence force-be-switch guid hash-preserve-affinity log-steps quic-initial ssl-f-use
"""

# A kind without words here takes any first word: its keywords differ too much between versions.
SECTIONS: Final[Mapping[str, frozenset[str]]] = {
    "global": frozenset(_GLOBAL.split()),
    **{kind: frozenset(_PROXY.split()) for kind in PROXY_KINDS},
    "userlist": frozenset({"group", "user"}),
    "peers": frozenset(
        {"bind", "default-bind", "default-server", "disabled", "enabled", "log", "peer", "server", "shards", "table"}
    ),
    "resolvers": frozenset(
        {
            "accepted_payload_size",
            "hold",
            "nameserver",
            "parse-resolv-conf",
            "resolution_pool_size",
            "resolve_retries",
            "timeout",
        }
    ),
    "mailers": frozenset({"mailer", "timeout"}),
    "cache": frozenset({"max-age", "max-object-size", "max-secondary-entries", "process-vary", "total-max-size"}),
    "ring": frozenset(
        {
            "backing-file",
            "description",
            "format",
            "maxlen",
            "server",
            "size",
            "timeout",
            "default-server",
            "server-proto",
        }
    ),
    "log-forward": frozenset(
        {"assume-rfc6587-ntf", "bind", "dgram-bind", "log", "maxconn", "option", "timeout", "backlog"}
    ),
    "http-errors": frozenset({"errorfile"}),
    "program": frozenset({"command", "group", "option", "user"}),
    "fcgi-app": frozenset({"acl", "docroot", "index", "log-stderr", "option", "pass-header", "path-info", "set-param"}),
    "namespace_list": frozenset({"namespace"}),
    "crt-store": frozenset({"crt-base", "key-base", "load"}),
    "acme": frozenset(),
    "log-profile": frozenset(),
    "traces": frozenset(),
    "healthcheck": frozenset(),
}

# Whole families of names that depend on how HAProxy was built.
OPEN_PREFIXES: Final = ("tune.quic.", "wurfl-", "deviceatlas-", "51degrees-")

_OPTIONS: Final = """
httplog httpslog tcplog httpclose forceclose http-server-close http-keep-alive http-tunnel forwardfor forwarded
originalto httpchk ssl-hello-chk smtpchk pgsql-check redis-check mysql-check ldap-check spop-check external-check
tcp-check redispatch http-restrict-req-hdr-names tcpka http_proxy http-use-htx
accept-unsafe-violations-in-http-request accept-unsafe-violations-in-http-response assume-rfc6587-ntf
dont-parse-log host http-drop-request-trailers http-drop-response-trailers use-small-buffers
"""

OPTIONS: Final = frozenset(_OPTIONS.split())

_TRACKING: Final = frozenset({"track-sc*", "capture"})
_MARKS: Final = frozenset({"set-bc-mark", "set-bc-tos", "set-fc-mark", "set-fc-tos"})
_HTTP_LATER: Final = _MARKS | {
    "do-log",
    "pause",
    "set-retries",
    "add-headers-bin",
    "set-headers-bin",
    "del-headers-bin",
}

RULES: Final[Mapping[str, frozenset[str]]] = {
    "http-request": _HTTP_LATER,
    "http-response": _HTTP_LATER,
    "http-after-response": frozenset({"do-log", "add-headers-bin", "set-headers-bin", "del-headers-bin"}),
    "tcp-request connection": _TRACKING
    | _MARKS
    | {"accept", "reject", "expect-proxy", "expect-netscaler-cip", "do-log"},
    "tcp-request session": _TRACKING | _MARKS | {"accept", "reject", "attach-srv", "do-log"},
    "tcp-request content": _TRACKING | _MARKS | {"accept", "reject", "do-log", "set-retries"},
    "tcp-response content": _TRACKING | _MARKS | {"accept", "close", "reject", "do-log"},
}

BIND_OPTIONS: Final[Mapping[str, int]] = {
    "cc": 1,
    "default-crt": 1,
    "ech": 1,
    "force-strict-sni": 0,
    "guid-prefix": 1,
    "idle-ping": 1,
    "ktls": 1,
    "label": 1,
    "no-strict-sni": 0,
    "ocsp-update": 1,
    "quic-cc-algo": 1,
    "quic-force-retry": 0,
    "quic-socket": 1,
    "nbconn": 1,
    "no-renegotiate": 0,
    "renegotiate": 0,
    "ssl": 0,
    "tcp-md5sig": 1,
    "tcp-ss": 1,
    "tls-tickets": 0,
}

SERVER_OPTIONS: Final[Mapping[str, int]] = {
    "cc": 1,
    "check-pool-conn-name": 1,
    "check-reuse-pool": 0,
    "check-sni-auto": 0,
    "client-sigalgs": 1,
    "curves": 1,
    "ech": 1,
    "guid": 1,
    "hash-key": 1,
    "idle-ping": 1,
    "init-state": 1,
    "ktls": 1,
    "log-bufsize": 1,
    "no-check-reuse-pool": 0,
    "no-check-sni-auto": 0,
    "no-renegotiate": 0,
    "no-sni-auto": 0,
    "no-strict-maxconn": 0,
    "pool-conn-name": 1,
    "quic-cc-algo": 1,
    "renegotiate": 0,
    "set-proxy-v2-tlv-fmt*": 1,
    "sigalgs": 1,
    "sni-auto": 0,
    "strict-maxconn": 0,
    "tcp-md5sig": 1,
}
