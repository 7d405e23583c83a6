"""Reports for commands and pages: reasons of waiting, usage of queues and quotas, and effects of evictions."""
