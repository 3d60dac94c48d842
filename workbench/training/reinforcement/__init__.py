"""Reinforcement learning (DQN): actors that play, replay, learners; Gorila and Ape-X."""
