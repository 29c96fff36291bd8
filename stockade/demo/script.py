"""The attempts as one shell script: each leaves what it printed and when, in the workspace."""

from collections.abc import Sequence
from typing import Final

from stockade.demo.attempts import Attempt

NAME: Final = "demo.sh"
RESULTS: Final = "results"
AUTHORITY: Final = "lab-authority.pem"

PRELUDE: Final = r"""#!/bin/bash
# The attempts of `stockade demo`. $HTTP_PROXY is set by the sandbox; the rest is the clients' own business:
# they are told to trust the authority of the lab's web sites, as they would trust a company's.
cd "$(dirname "$0")" || exit 1
export PROXY=${HTTP_PROXY#http://}
proxy_host=${PROXY%:*} proxy_port=${PROXY##*:}
authority=$PWD/lab-authority.pem
export CURL_CA_BUNDLE=$authority GIT_SSL_CAINFO=$authority PIP_CERT=$authority
export GIT_TERMINAL_PROMPT=0 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_INPUT=1
export PIP_RETRIES=0 PIP_TIMEOUT=5 PYTHONDONTWRITEBYTECODE=1

curl() { command curl --silent --show-error --fail-with-body --max-time 8 "$@"; }
pip() { timeout 15 python3 -I -m pip "$@" --no-deps; }
tell() { timeout 5 bash -c 'exec 3<>"/dev/tcp/$1/$2"; printf "$3" >&3; cat <&3' - "$@"; }
tell_proxy() { tell "$proxy_host" "$proxy_port" "$1"; }
tell_proxy_hex() { tell_proxy "$1" | od -An -v -tx1; }
tcp_to() { timeout 5 bash -c 'exec 3<>"/dev/tcp/$1/$2"; head -c 1 <&3' - "$1" "$2"; }
udp_to() { timeout 5 bash -c 'echo hello >"/dev/udp/$1/$2"' - "$1" "$2"; }
ssh_banner() {
    # OpenBSD's nc, or nmap's ncat: each speaks SOCKS5 in its own words.
    if nc -h 2>&1 | grep -q -- -X; then through="nc -X 5 -x $PROXY %h %p"
    else through="ncat --proxy-type socks5 --proxy $PROXY --proxy-dns remote %h %p"; fi
    timeout 8 ssh -v -F /dev/null -o BatchMode=yes -o "ProxyCommand=$through" "nobody@$1"
}
attempt() {
    local number=$1; shift
    date +%s%N >"results/$number.began"
    "$@" >"results/$number.said" 2>&1 </dev/null
    echo "$?" >"results/$number.status"
    date +%s%N >"results/$number.ended"
}
"""


def write(attempts: Sequence[Attempt]) -> str:
    """Write it all; attempt N leaves `results/N.began`, `.said`, `.status`, `.ended` (in ns)."""
    lines = [PRELUDE]
    for number, attempt in enumerate(attempts):
        lines.append(f"\n# {attempt.title}\ntry_{number}() {{\n    {attempt.shell}\n}}\nattempt {number} try_{number}\n")
    return "".join(lines)
