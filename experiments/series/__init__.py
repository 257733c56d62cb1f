"""A run on one time axis: ports, sockets and ranks, as Parquet files in the run folder's `series`."""
