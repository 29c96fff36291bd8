"""The data plane: listeners, resolver, gate, tunnel, forwarder and journal."""
