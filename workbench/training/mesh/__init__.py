"""The mesh: pipeline, data, sharded data and tensor parallelism, composed on lines of ranks."""
