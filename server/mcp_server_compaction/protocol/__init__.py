"""The server: tools, resources, prompts and completions of the Model Context Protocol."""
