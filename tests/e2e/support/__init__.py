"""What the end-to-end tests share: a daemon, a client, weights files, an fp64 reference."""
