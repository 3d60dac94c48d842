"""Decentralized training: graphs of peers, mixing, how fast replicas agree, and the laws."""
