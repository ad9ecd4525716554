"""Request traces replayed under eviction policies.

`traces` reads them, `simulation` replays them, `yardsticks`, `curve` and `advise` judge what came
of it, `console` is the command.
"""
