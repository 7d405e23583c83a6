"""What makes a gang whole: quorum, subgroups, bundles, priorities."""
