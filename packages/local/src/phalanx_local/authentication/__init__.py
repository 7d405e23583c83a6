"""Who the server is and who its clients are: certificates, tokens, kubeconfigs."""
