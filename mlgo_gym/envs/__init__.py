"""Gymnasium environments; `mlgo_gym.envs.registration` lists their ids."""
