-- A schedule fires nothing until it is resumed. No row: it is paused already, or there is none.
update holdfast.schedule set paused_at = :now, paused_why = :why::text, next_at = null, version = version + 1
 where name = :name and paused_at is null returning name
