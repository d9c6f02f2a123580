-- A child whose parent was rewound continues: it answers to the parent's next execution.
update holdfast.instance set start = :new::uuid, reply = :reply::text where id = :id and start = :old::uuid
