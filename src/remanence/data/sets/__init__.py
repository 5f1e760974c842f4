"""The data sets, one module each: names, checksums and URLs of their files, and readers."""
