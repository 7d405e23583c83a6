"""What makes a gang whole: quorum, subgroups, gang groups, priorities."""
