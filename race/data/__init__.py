"""Published numbers that ship with the package, as JSON, each with its source."""
