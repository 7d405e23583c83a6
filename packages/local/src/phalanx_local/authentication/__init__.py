"""Identity of the server and its clients: certificates, tokens, kubeconfigs."""
