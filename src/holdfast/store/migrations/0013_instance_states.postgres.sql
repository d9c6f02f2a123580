-- Instances can be paused (the engine cannot go on with them), suspended (an operator holds them) and terminated.
alter table holdfast.instance drop constraint instance_state_check;
alter table holdfast.instance add constraint instance_state_check check
    (state in ('running', 'paused', 'suspended', 'completed', 'failed', 'cancelled', 'terminated'));
alter table holdfast.instance add column poison uuid;   -- the dead letter that ended it: redriven, it opens it again
