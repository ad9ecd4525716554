"""What people ask on the command line, and how it is answered: as text, and as JSON."""
