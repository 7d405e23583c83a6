"""Submission of jobs: requests and manifests become objects, which are validated and created."""
