-- How far the handler under a lease has come, as it says (JSON, may be sealed): progress of long activities.
alter table holdfast_lease add column progress text;
