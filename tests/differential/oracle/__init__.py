"""The written rules of kube-scheduler 1.36, one module a plugin, applied to objects as kubectl shows them.

Nothing here is shared with the scheduler under test, and nothing is quick: every question walks over every object.
Each module is meant to be read beside the file that it names as the source of its rule.
"""
