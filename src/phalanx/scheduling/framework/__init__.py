"""What plugins and actions see: the extension points, and how a policy combines opinions."""
