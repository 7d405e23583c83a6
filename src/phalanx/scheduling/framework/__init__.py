"""Interface of plugins and actions: the extension points, and the rules by which a policy combines their
results.
"""
