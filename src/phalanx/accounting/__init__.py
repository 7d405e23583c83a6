"""What gangs have used, kept after their objects are gone: the recorder's process, and what asks its database."""
