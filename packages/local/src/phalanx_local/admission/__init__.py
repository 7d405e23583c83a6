"""Admission beyond the defaults of a kind: what a namespace's quotas and a pod's runtime class have to say."""
