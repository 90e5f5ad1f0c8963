"""The folder of a training run: its files, the versions that it was made with, and its weights."""
