"""Small gangs whose members need scarce things, compared with complete enumeration."""
