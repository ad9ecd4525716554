"""A package, so that fixtures can end with its last test (scope `package`)."""
