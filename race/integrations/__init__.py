"""Meters for other people's trainers, one module per trainer.

`race.integrations.trl` needs transformers and TRL; nothing else in `race` imports it.
"""
