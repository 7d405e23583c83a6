"""Notifications about runs of gangs: webhooks and mail, to targets that the administrator defines."""
