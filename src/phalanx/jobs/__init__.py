"""Volcano's kinds of jobs: what they say, the pods that follow from it, and how a job goes on. Without any I/O.

- `spec`: Job, CronJob, JobFlow, JobTemplate and Command as their users write them.
- What a job makes, always the same from the same job: `pods.desired_pod` and, for it, `plugins.registry.shape`;
  `pod_group.desired_pod_group`; `volumes.volumes_of`; `plugins.registry.desired_objects`. Objects that follow the
  job say by `changed` what a merge patch must bring; an ssh key is made once and lives as long as the job.
- `plugins`: one module each. They run in a fixed order, and a plugin brings those that it needs.
- How a job goes on: `reconciliation.plan`, from `members`, `phases`, `policies`, `restarts`, `dependencies`.

A plugin that a job cannot have is a JobPluginError: its text is for the job, and stops that job alone.
"""
