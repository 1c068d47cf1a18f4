import pytest

from haptic_trio.haproxy.config.parser import ConfigSyntaxError, parse_config


def _problems(text: str) -> list[str]:
    try:
        parse_config(text)
    except ConfigSyntaxError as exc:
        return [str(problem) for problem in exc.problems]
    return []


def _rejected(section: str, line: str) -> tuple[int, str]:
    with pytest.raises(ConfigSyntaxError) as caught:
        parse_config(f"{section}\n{line}\n")
    (problem,) = caught.value.problems
    return problem.column, f"{problem.message} ({problem.hint})"


@pytest.mark.parametrize(
    ("section", "line", "column", "hint"),
    [
        ("global", "  maxcon 10", 3, "did you mean 'maxconn'?"),
        ("backend b", "\tbalence roundrobin", 2, "did you mean 'balance'?"),
        ("backend b", "  nbthread 4", 3, "sections of kind global"),
        ("backend b", "  option  httpcheck", 11, "did you mean 'httpchk'?"),
        ("backend b", "  timeout clinet 5s", 11, "did you mean 'client'?"),
        ("backend b", "  filter compresion", 10, "did you mean 'compression'?"),
        ("frontend f", "  http-request 'set-heder' a b", 16, "did you mean 'set-header'?"),
        ("frontend f", "  acl a req.hrd(host) x", 9, "did you mean 'req.hdr'?"),
        ("frontend f", "  acl a req.hdr(host),lowr x", 9, "did you mean 'lower'?"),
        ("frontend f", "  acl a path -m bge /x", 17, "did you mean 'beg'?"),
        ("frontend f", "  http-request set-header X 'a %[srcc]'", 29, "did you mean 'src'?"),
        ("frontend f", "  use_backend %[req.hdr(host),map_stt(x)]", 15, "did you mean 'map_str'?"),
        ("frontend f", "  http-request deny if { srcc 10.0.0.0/8 }", 26, "did you mean 'src'?"),
        ("backend b", "  server s 127.0.0.1:1 'a b' check", 24, "unknown server option"),
        ("backend b", "  server s 127.0.0.1:1 chek", 24, "did you mean 'check'?"),
        ("global", "bakcend b", 1, "did you mean 'backend'?"),
        ("defaults", "  http-request deny", 3, "give the section a name"),
    ],
)
def test_a_wrong_word_is_named_with_its_column_and_the_nearest_right_one(
    section: str, line: str, column: int, hint: str
) -> None:
    found, text = _rejected(section, line)
    assert found == column
    assert hint in text


@pytest.mark.parametrize(
    ("section", "line", "column", "message"),
    [
        ("defaults", "  timeout client 5x", 18, "'5x' is not a time"),
        ("defaults", "  timeout client", 17, "'timeout client' needs 1 argument"),
        ("global", "  maxconn 10 20", 14, "unexpected '20'"),
        ("global", "  maxconn 10k", 11, "'10k' is not a number"),
        ("frontend f", "  http-request set-header X", 28, "'http-request set-header' needs 2 arguments"),
        ("frontend f", "  http-request set-header X y z", 31, "unexpected 'z'"),
        ("frontend f", "  http-request set-path /x if { path", 31, "'{' without '}'"),
        ("frontend f", "  acl a int(1),add(1,2) 1", 9, "'add' takes no more than 1 argument"),
        ("frontend f", "  acl a sc_conn_cnt gt 1", 9, "'sc_conn_cnt' needs 1 argument"),
    ],
)
def test_too_few_too_many_and_ill_formed_words_are_named_with_their_column(
    section: str, line: str, column: int, message: str
) -> None:
    found, text = _rejected(section, line)
    assert found == column
    assert message in text


@pytest.mark.parametrize(
    ("above", "condition"),
    [
        ("", "no_such_acl"),
        ("acl other path /", "other !known"),
        ("acl other path /", "other or known"),
    ],
)
def test_an_acl_is_known_only_below_the_line_that_declares_it(above: str, condition: str) -> None:
    text = f"frontend f\n  mode http\n  {above}\n  http-request deny if {condition}\n  acl known path /\n"
    (problem,) = _problems(text)
    assert "no acl" in problem


@pytest.mark.parametrize(
    "condition",
    [
        "known",
        "!known",
        "! known or TRUE",
        "METH_GET HTTP",
        "{ path / } || { src 10.0.0.0/8 }",
        "!{ path -m beg /a -i }",
    ],
)
def test_declared_predefined_and_anonymous_conditions_are_accepted(condition: str) -> None:
    text = f"frontend f\n  mode http\n  acl known path /\n  http-request deny if {condition}\n"
    text += f"  use_backend b if {condition}\n"
    assert _problems(text) == []


def test_an_acl_in_a_branch_counts_as_declared() -> None:
    text = "frontend f\n  mode http\n.if 1\n  acl a path /\n.endif\n  http-request deny if a\n"
    assert _problems(text) == []
    assert _problems(text.replace("acl a", 'acl "$A"')) == []


@pytest.mark.parametrize(
    "word",
    [
        "%[str('a,b'),concat(\\,,txn.x,'\\)')]",
        "%%[nothing]",
        "100%",
        "%{+Q}[src]",
        "%[lua.mine(1)]",
        "%[src,lua.mine]",
        "%[req.hdr(a),field(1,:),lower]-%[src]",
    ],
)
def test_expressions_are_read_with_their_quoting(word: str) -> None:
    assert _problems(f'frontend f\n  mode http\n  http-request set-header X "{word}"\n'.replace("\\", "\\\\")) == []


def test_words_that_refer_to_the_environment_are_not_judged() -> None:
    text = 'backend "$NAME"\n  option "$OPTION"\n  server "$A" "$B" "$C"\n  "$KEYWORD" y\n  timeout client "$T"\n'
    assert _problems(text + '  http-request deny if "$CONDITION"\n  acl a "$FETCH" x\n') == []
