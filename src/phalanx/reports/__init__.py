"""What people read: why something waits, who has what, what evictions did."""
