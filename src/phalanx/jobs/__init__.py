"""Volcano's kinds of jobs: their specs, the pods that follow from them, and their life cycle. Without any I/O.

- `spec`: Job, CronJob, JobFlow, JobTemplate and Command as users write them.

- Objects of a job, deterministic for a given job: `pods.desired_pod` and its `plugins.registry.shape`;
`pod_group.desired_pod_group`; `volumes.volumes_of`; `plugins.registry.desired_objects`. For objects that follow
the job, `changed` returns the merge patch; an ssh key is generated once and lasts as long as the job.

- `plugins`: one module each. They run in a fixed order, and each plugin enables the plugins that it needs.

- Life cycle of a job: `reconciliation.plan`, from `members`, `phases`, `policies`, `restarts`, `dependencies`.

An invalid plugin raises JobPluginError: its text is shown on the job, and only that job stops.
"""
