-- Messages and requests whose ids are between two: pending, dead or ended ones. Each part reads an index.
select p.* from (select m.id, m.queue, m.type, 'pending' as what, m.created_at as at from holdfast.pending m
                  where m.id between :low::uuid and :high::uuid limit :limit) p
 union all
select p.* from (select d.id, d.queue, d.type, 'dead', d.died_at from holdfast.dead d
                  where d.id between :low::uuid and :high::uuid limit :limit) p
 union all
select p.* from (select h.id, h.queue, h.type, h.outcome, h.ended_at from holdfast.history h
                  where h.id between :low::uuid and :high::uuid limit :limit) p
 union all
select p.* from (select r.id, null, r.kind, 'request', r.created_at from holdfast.request r
                  where r.id between :low::uuid and :high::uuid limit :limit) p
