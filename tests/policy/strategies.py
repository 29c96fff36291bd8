"""What hypothesis draws for the policy tests."""

from hypothesis import strategies as st

from policy.host import plain

LABELS = st.from_regex(r"[a-z0-9_]([a-z0-9_-]{0,20}[a-z0-9_])?", fullmatch=True).filter(
    lambda it: not it.startswith("xn--")
)
NAMES = st.builds(
    lambda labels, last: ".".join([*labels, last]),
    st.lists(LABELS, max_size=4),
    st.from_regex(r"[a-z_]([a-z0-9-]{0,10}[a-z])?", fullmatch=True).filter(lambda it: not it.startswith("xn--")),
)
HOSTS = st.one_of(NAMES, st.ip_addresses().map(plain))
PORTS = st.integers(1, 65535)
