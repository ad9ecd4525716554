"""Request traces: the formats that can be read, and what every reader makes of them."""
