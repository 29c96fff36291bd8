"""The cordon: network namespaces in which the proxy is the only way out."""
