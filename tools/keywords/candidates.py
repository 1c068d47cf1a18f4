"""Names that may be keywords of HAProxy 2.8 to 3.4 although no listing has them: built into its section parsers.

`tools/keywords/dump.py` asks each real binary which of them it knows; only
the answers go into the shipped tables.
"""

from collections.abc import Mapping
from typing import Final

KINDS: Final = """
global defaults frontend backend listen userlist peers resolvers mailers cache ring log-forward http-errors program
fcgi-app namespace_list crt-store acme log-profile traces healthcheck dynamic-update ruleset stick-tables
"""

GLOBAL: Final = """
anonkey busy-polling chroot cluster-secret cpu-map daemon description expose-experimental-directives external-check
fd-hard-limit gid group h2-workaround-bogus-websocket-clients insecure-fork-wanted insecure-setuid-wanted limited-quic
localpeer log log-send-hostname log-tag master-worker max-spread-checks maxcompcpuusage maxcomprate maxconn maxconnrate
maxpipes maxsessrate maxsslrate maxzlibmem nbproc no-quic node noepoll noevports nogetaddrinfo nokqueue nopoll
noreuseport nosplice numa-cpu-mapping pidfile presetenv quick-exit quiet resetenv server-state-base server-state-file
set-dumpable setenv spread-checks ssl-engine ssl-server-verify strict-limits uid ulimit-n unix-bind unsetenv user
zero-warning profiling.memory profiling.tasks stats-file debug http-err-codes http-fail-codes ssl-mode-async
wurfl-data-file wurfl-information-list wurfl-information-list-separator wurfl-patch-file wurfl-cache-size
deviceatlas-json-file deviceatlas-log-level deviceatlas-separator deviceatlas-properties-cookie
51degrees-data-file 51degrees-property-name-list 51degrees-property-separator 51degrees-cache-size
tune.buffers.limit tune.buffers.reserve tune.bufsize tune.chksize tune.comp.maxlevel tune.disable-fast-forward
tune.http.cookielen tune.http.logurilen tune.http.maxhdr tune.idletimer tune.maxaccept tune.maxpollevents
tune.maxrewrite tune.pattern.cache-size tune.pipesize tune.rcvbuf.client tune.rcvbuf.server tune.recv_enough
tune.runqueue-depth tune.sndbuf.client tune.sndbuf.server tune.memory.pool-cache-size tune.pool.cache-size
tune.h1.be.glitches-threshold tune.max-checks-per-thread tune.idle-pool.shared tune.ssl.keylog tune.zlib.memlevel
tune.zlib.windowsize tune.quic.conn-buf-limit tune.quic.frontend.conn-tx-buffers.limit tune.quic.socket-owner
"""

PROXY: Final = """
acl appsession backlog balance bind bind-process block capture cliexp cookie crt default-server default_backend
description disabled dispatch dynamic-cookie-key email-alert enabled error-log-format errorfiles filter-sequence
force-persist force-be-switch fullconn grace guid hash-balance-factor hash-preserve-affinity hash-type
http-after-response http-request http-response http-reuse http-send-name-header id ignore-persist
load-server-state-from-file log log-format log-format-sd log-profile log-steps log-tag max-session-srv-conns maxconn
mode monitor monitor-net monitor-uri option persist redirect redisp redispatch reqadd reqallow reqdel reqdeny reqiallow
reqidel reqideny reqipass reqirep reqitarpit reqpass reqrep reqtarpit retries rspadd rspdel rspdeny rspidel rspideny
rspirep rsprep server server-state-file-name server-template source srvexp stats stick stick-table transparent
unique-id-format unique-id-header use-server use_backend usesrc
"""

SECTIONS: Final[Mapping[str, str]] = {
    "userlist": "group user",
    "peers": "bind default-bind default-server disabled enabled log peer server shards table",
    "resolvers": "accepted_payload_size hold nameserver parse-resolv-conf resolution_pool_size resolve_retries timeout",
    "mailers": "mailer timeout",
    "cache": "max-age max-object-size max-secondary-entries process-vary total-max-size",
    "ring": "backing-file default-server description format maxlen server server-proto size timeout",
    "log-forward": "assume-rfc6587-ntf backlog bind dgram-bind log maxconn option timeout",
    "http-errors": "errorfile",
    "program": "command group option user",
    "fcgi-app": "acl docroot index log-stderr option pass-header path-info set-param",
    "crt-store": "crt-base key-base load",
    "acme": "account-key challenge contact directory bits curves keytype map",
    "log-profile": "log-tag on",
    "traces": "trace",
    "healthcheck": "type http-check tcp-check option use-small-buffers",
}

# A section that its parser demands one of: what stands before a probed line.
NEEDS: Final[Mapping[str, str]] = {"cache": "  total-max-size 4\n"}

OPTIONS: Final = """
httplog httpslog tcplog httpclose forceclose http-server-close http-keep-alive http-tunnel forwardfor forwarded
originalto httpchk ssl-hello-chk smtpchk pgsql-check redis-check mysql-check ldap-check spop-check external-check
tcp-check redispatch http-restrict-req-hdr-names tcpka accept-invalid-http-request
accept-invalid-http-response http_proxy http-use-htx use-small-buffers
accept-unsafe-violations-in-http-request accept-unsafe-violations-in-http-response
http-drop-request-trailers http-drop-response-trailers
"""

FORWARD_OPTIONS: Final = "assume-rfc6587-ntf dont-parse-log host"

TIMEOUTS: Final = """
client server connect check queue http-keep-alive http-request tunnel tarpit client-fin server-fin client-hs clitimeout
contimeout srvtimeout
"""

RULES: Final[Mapping[str, str]] = {
    "tcp-request connection": "accept reject expect-proxy expect-netscaler-cip capture track-sc0 close",
    "tcp-request session": "accept reject expect-proxy capture track-sc0 attach-srv close",
    "tcp-request content": "accept reject expect-proxy capture track-sc0 close",
    "tcp-response content": "accept reject capture track-sc0 close",
}

BIND: Final = "ssl:0 no-renegotiate:0 renegotiate:0 ech:1 ocsp-update:1 no-tls-tickets:0 ktls:1 accept-netscaler-cip:1"

SERVER: Final = "ech:1 no-tfo:0 no-check-send-proxy:0 init-state:1 no-strict-maxconn:0 hash-preserve-affinity:1"

MATCHES: Final = "found bool int ip bin len str beg sub dir dom end reg"
