"""What whoever runs a service looks at: metrics and traces."""
