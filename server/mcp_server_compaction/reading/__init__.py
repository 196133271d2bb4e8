"""Reading what is archived: by lines, characters, pattern or JSON path."""
