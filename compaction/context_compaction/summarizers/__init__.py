"""Summary writers: what writes the text that replaces history.

`extractive` needs no model and is always available; `llm` asks one; `instructions` finds what the
user laid down for all later work.
"""
