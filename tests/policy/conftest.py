"""hypothesis under a loaded machine: no time limit on one example."""

from hypothesis import settings

settings.register_profile("policy", deadline=None)
settings.load_profile("policy")
