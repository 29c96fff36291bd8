"""The compiled tables against looking at every grant, and that order never matters."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from policy.answer import Answer
from policy.destination import Destination
from policy.grant import Grant, HostPattern, Refuse
from policy.judge import admit, judge
from policy.layers import Layer, combine
from policy.special import SINGLE_LABEL, SPECIAL_NAMES, special
from policy.verdict import Reason
from tests.policy.strategies import NAMES

LABEL = st.sampled_from(["a", "b", "com", "net", "internal", "x-y"])
NAME = st.lists(LABEL, min_size=1, max_size=4).map(".".join)
PATTERNS = st.lists(st.builds(HostPattern, NAME, st.booleans()), max_size=3).map(tuple)
ADDRESSES = st.ip_addresses(v=4)
NETWORKS = st.lists(
    st.sampled_from(["10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/32", "93.184.215.0/24", "2606:4700::/32"]), max_size=2
)
PORTS = st.sampled_from([(range(443, 444), range(80, 81)), (range(443, 444),), (range(1, 65536),), (range(22, 23),)])


@st.composite
def grants(draw):
    from ipaddress import ip_network

    hosts = draw(PATTERNS)
    return Grant(
        name=draw(st.sampled_from("pqrs")),
        hosts=hosts,
        addresses=tuple(map(ip_network, draw(NETWORKS))),
        public_web=draw(st.sampled_from([False, False, False, True])),
        ports=draw(PORTS),
        private=tuple(map(ip_network, draw(NETWORKS))) if hosts else (),
        until_s=draw(st.sampled_from([None, None, 50.0, 150.0])),
        intercept=draw(st.sampled_from([False, False, True])),
    )


@st.composite
def refuses(draw):
    from ipaddress import ip_network

    return Refuse(draw(st.sampled_from("uvw")), draw(PATTERNS), tuple(map(ip_network, draw(NETWORKS))))


def naive_special(name):
    if "." not in name and name not in SPECIAL_NAMES:
        return SINGLE_LABEL
    rows = [row for row in SPECIAL_NAMES.values() if name == row.suffix or name.endswith("." + row.suffix)]
    return max(rows, key=lambda row: len(row.suffix), default=None)


@given(
    st.one_of(NAMES, NAME, st.builds(lambda head, row: f"{head}.{row}", LABEL, st.sampled_from(sorted(SPECIAL_NAMES))))
)
def test_special_names_and_their_naive_twin(name):
    assert special(name) == naive_special(name)


@given(st.lists(grants(), max_size=5), st.lists(refuses(), max_size=3), st.one_of(NAME, NAMES))
def test_names_and_their_naive_twin(allowed, refused, name):
    said = combine([Layer("l", grants=tuple(allowed), refuses=tuple(refused))]).tables[0].about(name)
    rules = [rule for rule in refused if any(pattern.covers(name) for pattern in rule.hosts)]
    assert (said.rule in rules) if rules else said.rule is None
    speaking = [grant for grant in allowed if grant.public_web or any(pattern.covers(name) for pattern in grant.hosts)]
    assert sorted((entry.grant.key() for entry in said.entries), key=str) == sorted(
        (grant.key() for grant in speaking), key=str
    )
    assert said.special == naive_special(name)


@st.composite
def questions(draw):
    name = draw(NAME)
    host = draw(
        st.one_of(
            st.just(name), ADDRESSES, st.sampled_from(["10.1.2.3", "93.184.215.14", "2606:4700::1"]).map(_address)
        )
    )
    addresses = draw(
        st.lists(
            st.sampled_from(["10.1.2.3", "10.9.9.9", "93.184.215.14", "1.1.1.1", "127.0.0.1"]).map(_address),
            min_size=1,
            max_size=3,
        )
    )
    chain = tuple(draw(st.lists(NAME, max_size=2)))
    head = draw(st.sampled_from([{}, {"method": "GET", "path": "/"}]))
    return Destination(host, draw(st.sampled_from([22, 80, 443]))), Answer(host, tuple(addresses), chain), head


def _address(text):
    from ipaddress import ip_address

    return ip_address(text)


MODES = st.sampled_from(["enforce", "enforce", "report"])


@given(st.data(), st.lists(grants(), max_size=5), st.lists(refuses(), max_size=3), MODES, questions())
def test_order_in_a_file_never_matters(data, allowed, refused, mode, question):
    destination, answer, head = question
    layer = Layer("l", mode=mode, grants=tuple(allowed), refuses=tuple(refused))
    shuffled = replace(
        layer,
        grants=tuple(replace(it, line=at) for at, it in enumerate(data.draw(st.permutations(allowed)))),
        refuses=tuple(data.draw(st.permutations(refused))),
    )
    one, other = combine([layer]), combine([shuffled])
    assert judge(one, destination, 100.0, **head) == judge(other, destination, 100.0, **head)
    assert admit(one, destination, answer, 100.0, **head) == admit(other, destination, answer, 100.0, **head)


LAYERS = st.lists(
    st.builds(
        Layer,
        st.sampled_from("lmn"),
        st.just(""),
        MODES,
        st.lists(grants(), max_size=4).map(tuple),
        st.lists(refuses(), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=3,
)


@given(st.data(), LAYERS, questions())
def test_order_of_layers_never_matters_and_a_layer_only_narrows(data, layers, question):
    destination, answer, head = question
    verdict = judge(combine(layers), destination, 100.0, **head)
    shuffled = judge(combine(data.draw(st.permutations(layers))), destination, 100.0, **head)
    assert (verdict.allowed, verdict.reason) == (shuffled.allowed, shuffled.reason)
    alone = [judge(combine([layer]), destination, 100.0, **head) for layer in layers]
    assert verdict.allowed == all(one.allowed for one in alone)
    admitted, pin = admit(combine(layers), destination, answer, 100.0, **head)
    assert admitted.allowed == all(
        admit(combine([layer]), destination, answer, 100.0, **head)[0].allowed for layer in layers
    )
    assert (pin is None) != admitted.allowed


@given(LAYERS, questions())
def test_what_is_admitted_was_judged_and_never_touches_the_hard_floor(layers, question):
    destination, answer, head = question
    policy = combine(layers)
    verdict, pin = admit(policy, destination, answer, 100.0, **head)
    if pin is not None:
        assert judge(policy, destination, 100.0, **head).allowed
        assert verdict.reason is Reason.GRANTED
        assert not any(address.is_loopback for address in pin.addresses)
