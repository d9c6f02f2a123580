-- Make sure that this transaction cannot be committed.
select holdfast.refuse()
