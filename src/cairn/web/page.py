"""The live page: one file, no build step; it asks for the status every second."""

from __future__ import annotations

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Cairn</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
 :root { color-scheme: light dark; --line: #8884; --ok: #2a8a4a; --bad: #c23b3b; }
 body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 62rem; padding: 0 1rem }
 h1 { font-size: 1.3rem } h2 { font-size: 1.05rem; margin: 1.6rem 0 .4rem }
 .set { border: 1px solid var(--line); border-radius: 8px; padding: .6rem .9rem; margin: .6rem 0 }
 .row { display: flex; gap: 1rem; align-items: baseline; padding: .15rem 0; flex-wrap: wrap }
 .name { font-weight: 600; min-width: 7rem } .mute { opacity: .65 }
 .Online { color: var(--ok) } .Offline, .Expelled { color: var(--bad) }
 .tag { border: 1px solid var(--line); border-radius: 4px; padding: 0 .4rem; font-size: .8rem }
 #trouble { color: var(--bad) }
</style></head><body>
<h1 id="title">Cairn</h1><div id="head" class="mute"></div><div id="trouble"></div>
<div id="sets"></div>
<script>
const el = (tag, cls, text) => {
  const e = document.createElement(tag); if (cls) e.className = cls;
  if (text !== undefined) e.textContent = text; return e };
async function look() {
  try {
    const s = await (await fetch('/api/v1/status')).json();
    document.getElementById('title').textContent = s.cluster.name + ' · ' + s.cluster.version;
    const g = s.governor;
    document.getElementById('head').textContent =
      `leader ${s.raft.leader ?? 'none'} · term ${s.raft.term} · index ${s.raft.index} · ` +
      `governor: ${g.step}${g.subject ? ' (' + g.subject + ')' : ''}`;
    document.getElementById('trouble').textContent =
      [...(g.blocked_by ?? []), g.last_error].filter(Boolean).join(' · ');
    const sets = document.getElementById('sets'); sets.replaceChildren();
    for (const m of s.moves ?? []) {
      const row = el('div', 'row');
      row.append(el('span', 'name', `buckets ${m.start}–${m.end}`),
        el('span', 'mute', `${m.source} → ${m.target} · ${m.phase} · ${m.rows} rows` +
          (m.rows_to_do === null ? '' : ` of ${m.rows + m.rows_to_do}`) +
          (m.rows_per_s ? ` · ${m.rows_per_s} rows/s` : '') +
          (m.eta_s === null ? '' : ` · ${m.eta_s} s left`)), el('span', 'mute', m.waits_for));
      sets.append(row);
    }
    for (const r of s.replicasets) {
      const box = el('div', 'set');
      const head = el('div', 'row');
      head.append(el('span', 'name', r.name), el('span', 'mute',
        `${r.tier} · ${r.state} · epoch ${r.epoch} · weight ${r.weight} · ${r.buckets} buckets`));
      box.append(head);
      for (const i of s.instances.filter(i => i.replicaset === r.name)) {
        const row = el('div', 'row');
        const state = i.current_state.split('(')[0];
        row.append(el('span', 'name', i.name), el('span', state,
          i.current_state === i.target_state ? i.current_state
            : `${i.current_state} → ${i.target_state}`));
        if (r.master === i.name) row.append(el('span', 'tag', 'master'));
        if (i.leader) row.append(el('span', 'tag', 'raft leader'));
        else if (i.voter) row.append(el('span', 'tag', 'voter'));
        row.append(el('span', 'mute', i.addresses.pg ?? ''));
        if (i.lag) row.append(el('span', 'mute', `lag ${i.lag}`));
        if (i.lag_rows) row.append(el('span', 'mute', `${i.lag_rows} rows behind`));
        for (const l of (i.links ?? []).filter(l => l.state === 'stopped'))
          row.append(el('span', 'Offline', `stopped following ${l.upstream}: ${l.problem}`));
        box.append(row);
      }
      sets.append(box);
    }
  } catch (problem) {
    document.getElementById('trouble').textContent = 'no answer: ' + problem;
  }
}
look(); setInterval(look, 1000);
</script></body></html>
"""
