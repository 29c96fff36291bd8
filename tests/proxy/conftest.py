"""How hypothesis runs here: a busy machine is no failure, so no example has a deadline."""

from hypothesis import settings

settings.register_profile("proxy", deadline=None)
settings.load_profile("proxy")
