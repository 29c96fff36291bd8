"""How ssh, and git over it, reach the proxy: its configuration in the sandbox, and what asks for the tunnel."""

from typing import Final

from policy.limits import PROXY_PORT

CONNECT_FILE: Final = "/etc/stockade/connect"
CONFIG_FILE: Final = "/etc/ssh/ssh_config"

CONFIG: Final = f"""\
# ssh reads no proxy variable, so the way out is written here. The machine's own file is not shown in the sandbox.
Match host !localhost,!127.0.0.1,!::1,*
    ProxyCommand {CONNECT_FILE} %h %p
"""
"""ssh_config(5). A ProxyCommand from the command line or the workspace's .ssh/config comes before it."""

CONNECT: Final = f"""\
#!/bin/bash
# connect HOST PORT: a tunnel to HOST through the proxy (RFC 9110, section 9.3.6), on standard input and output.
host=$1; case $host in *:*) host="[$host]";; esac
exec 3<>/dev/tcp/127.0.0.1/{PROXY_PORT} || exit 1
printf 'CONNECT %s:%s HTTP/1.1\\r\\nHost: %s:%s\\r\\n\\r\\n' "$host" "$2" "$host" "$2" >&3
IFS= read -r status <&3
while IFS= read -r line <&3 && [ "${{line%$'\\r'}}" ]; do :; done
case $status in
  'HTTP/1.1 200'*) ;;
  *) echo "${{status%$'\\r'}}" >&2; cat <&3 >&2; exit 1;;
esac
cat <&3 &
cat >&3
wait
"""
"""In bash, which opens sockets itself (/dev/tcp): netcat may be absent, and its kinds differ in their options."""
