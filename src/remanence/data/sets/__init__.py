"""The data sets, one file each: names, checksums and places of their files, and how they are read."""
