"""Admission webhook: Volcano's paths over HTTPS, its certificates and its registration (docs/webhook.md)."""
