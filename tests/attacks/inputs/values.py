"""Hostile values: what HAProxy, maps, crt-lists, Lua, templates, shells and file systems read as more than data."""

from typing import Any, Final

FLAGS: Final = ("-u", "-i", "-n", "-M", "-f /etc/passwd", "-f", "--", "-m", "-m str", "-dd", "-A", "-")
"""What an ACL reads as an option in place of a pattern."""

SYNTAX: Final = (
    *(
        "'",
        '"',
        "\\",
        "\\\n",
        "#",
        " #",
        " ",
        "  ",
        "x y z",
        "\t",
        "{",
        "}",
        " } ",
        " } or { always_true",
        "{}",
        "(",
        ")",
    ),
    *(
        "[",
        "]",
        "[alpn h2]",
        "|",
        ",",
        ";",
        "=",
        "&",
        ">",
        "<",
        "?",
        "!",
        "*",
        "~",
        "@",
        ":",
        "::",
        "^",
        "`",
        "&&",
        "||",
    ),
    *(" if TRUE", " unless FALSE", "' if TRUE", "' } { always_true", "a' code 301\n    http-request deny"),
)
LOG_FORMAT: Final = (
    *("%", "%%", "100%", "%ci", "%{+Q}o", "%[src]", "%[env(HOME)]", "%[var(txn.host)]", "%[lua.exit]", "%[", "%]"),
    *("$HOME", "${HOME}", "${HOME-x}", "$1", "\\1", "$(id)", '"${HOME}"', "$host", "$"),
)
BREAKS: Final = (
    *("\n", "\r\n", "\r", "\v", "\f", "\0", "\x1b[2J", "\x7f", "\x85", "\u2028", "\u2029"),
    *(
        "\nbackend injected\n",
        "\nfrontend f\n    bind :99\n",
        "\n    http-request deny\n",
        "\nglobal\n    insecure-setuid-wanted\n",
    ),
    *("x\n    server s 10.9.9.9:80", "\n10.0.0.1 yes\n", "\n#", "\r\nX-Injected: yes"),
)
UNICODE: Final = (
    *(
        "\ufeff",
        "\ufdd0",
        "\ufffe",
        "\U0001ffff",
        "\ud800",
        "\udfff",
        "\U0001f984",
        "\u00e4",
        "\u202e",
        "\u200b",
        "\u00a0",
    ),
    *("\uff05", "\uff07", "\u0430dmin", "\u212a", "\u0661\u0662", "\u3002", "e\u0301"),
)
PLACES: Final = (
    *(
        "/",
        "//",
        "/../",
        "..",
        ".",
        "../../etc/passwd",
        "/etc/passwd",
        "%2f",
        "%2e%2e",
        "/./",
        "file:///etc/passwd",
        "~root",
    ),
    *("unix@", "unix@/run/haproxy.sock", "fd@3", "abns@x", "sockpair@3", "ipv4@127.0.0.1", "quic4@:443", "rhttp@x"),
    *(
        "127.0.0.1",
        "169.254.169.254",
        "fe80::1%eth0",
        "::1",
        "[::1]:80",
        "0x7f000001",
        "010.0.0.1",
        "127.1",
        "0.0.0.0/0",
    ),
    *("localhost", "http://127.0.0.1:9090/", "svc://kube-system/x:80/", "*.", "*", "*.*", "xn--a"),
)
NUMBERS: Final = (
    *("0", "-1", "0x10", "1e9", "007", "+1", "1_000", "65536", "2147483648", "4294967296", "9" * 20, "9" * 400),
    *("24.9d", "99999999d", "1us", "5 s", "4g", "1025g", "NaN", "inf", "true", "TRUE", "yes", "null", "~", "on\n"),
)
PROGRAMS: Final = (
    *("]]", "]==]", '"..os.exit()--', "'..os.exit()..'", "\\065", "%s%s%s", "{{ 7 * 7 }}", "{% raw %}", "{#", "{{"),
    *(
        "(a+)+$",
        "(a|a)*b",
        "(?R)",
        "(?{1})",
        "\\K",
        "[[:alpha:]]",
        "(",
        "a{65535}",
        "(*LIMIT_MATCH=1)",
        "\\Q",
        "^/.*$",
        ".*",
    ),
    *(
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        "MIIB",
        "<script>",
        "A" * 300,
        "UPPER.Example.COM",
    ),
    *("=", "==", "b,1,x,", "hs,x-evil,1;", "m,GET&", ">gateway_x", "=HTTPRoute/x/y/0.0", "HTTPRoute/x/y/0.0 b,1,z,"),
)
LONG: Final = ("a" * 5_000, "/" + "b" * 70_000, "a." * 2_000, "a," * 3_000, "\n" * 2_000, "%" * 3_000)

TEXTS: Final[tuple[str, ...]] = (
    *FLAGS,
    *SYNTAX,
    *LOG_FORMAT,
    *BREAKS,
    *UNICODE,
    *PLACES,
    *NUMBERS,
    *PROGRAMS,
    *LONG,
    "",
)

# What an API server never stores in place of a text or a number, and a file of manifests may hold.
OTHER_TYPES: Final[tuple[Any, ...]] = (
    None, True, False, 0, -1, 65_536, 10**30, 1.5, float("inf"),
    [], {}, ["a", "b"], {"a": "b"}, [None], [[]], {"a": {"b": []}},
)  # fmt: skip
