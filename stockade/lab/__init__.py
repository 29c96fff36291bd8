"""A private internet in network namespaces with no way out: names, servers, certificates, and canaries that only count."""
