"""core/v1 Pods as specs and classes, and what other objects decide about a pod."""
