"""The line of one call: prepare, archive, plan, summarize, assemble, validate, report."""
