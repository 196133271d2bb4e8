"""Write the text that replaces older messages.

`extractive` needs no model. `llm` asks a model. `instructions` finds the user's rules.
"""
