"""A private internet in network namespaces with no way out, with canaries that only count."""
