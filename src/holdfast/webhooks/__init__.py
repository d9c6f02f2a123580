"""What webhooks need, whoever sends or receives them: signatures, and a call that cannot be led astray or held up."""
