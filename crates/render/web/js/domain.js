// The domain: what was measured and how, what was not, what it cost, and how to see more.

import { copy, el, fill, name, say } from './dom.js';
import { STATES, STATE_TITLES } from './profile.js';
import { smallestShare } from './stats.js';
import { badge } from './ledger.js';
import { bytes, count, duration, isTime, percent, time } from './text.js';

/** @param {string} title @param {(string | Node)[][]} rows */
function table(title, rows) {
  if (rows.length === 0) return null;
  return el('section', {}, el('h3', {}, title), el('table', { class: 'plain' }, el('tbody', {}, ...rows.map((r) => el('tr', {}, ...r.map((c, i) => el(i === 0 ? 'th' : 'td', i === 0 ? { scope: 'row' } : {}, c)))))));
}

/** A command, with a button that copies it. @param {string} text */
function command(text) {
  return el('p', { class: 'command' }, el('code', {}, name(text)), el('button', { type: 'button', onclick: async () => say((await copy(text)) ? 'Copied.' : 'Copying is not allowed here.') }, 'Copy'));
}

/** What the host was doing. @param {any} m facts about the recording */
function hostRows(m) {
  const first = m.host[0];
  const last = m.host[m.host.length - 1];
  const most = (/** @type {(h: any) => number | null | undefined} */ f) => m.host.reduce((/** @type {number} */ a, /** @type {any} */ h) => Math.max(a, f(h) ?? 0), 0);
  const rows = [];
  if (first && last) {
    if (first.load !== null) rows.push(['Load average', `${first.load.toFixed(2)} at the start, ${last.load?.toFixed(2)} at the end, on ${m.domain.cpus} CPUs`]);
    if (first.cpu && last.cpu) {
      const delta = first.cpu.map((/** @type {number} */ v, /** @type {number} */ i) => last.cpu[i] - v);
      const sum = delta.reduce((/** @type {number} */ a, /** @type {number} */ b) => a + b, 0);
      if (sum > 0) rows.push(['The machine’s CPUs', `${percent(1 - (delta[3] + delta[4]) / sum)} busy, ${percent(delta[4] / sum)} waiting for disks, ${percent(delta[7] / sum)} taken by the hypervisor`]);
    }
    ['CPU', 'I/O', 'memory'].forEach((what, i) => {
      if (first.psi[i] !== null) rows.push([`Pressure on ${what}`, `at most ${most((h) => h.psi[i]).toFixed(1)} % of time stalled`]);
    });
    if (first.memory && last.memory) rows.push(['Memory available', `${bytes(last.memory[1])} of ${bytes(last.memory[0])} at the end`]);
    if (first.quota && last.quota) {
      const [quota, period, n, ns] = last.quota;
      if (quota && period) rows.push(['CPU quota', `${(quota / period).toFixed(2)} CPUs; throttled ${count((n ?? 0) - (first.quota[2] ?? 0))} times, ${duration((ns ?? 0) - (first.quota[3] ?? 0))}`]);
    }
  }
  return rows;
}

/**
 * @param {HTMLElement} host
 * @param {import('./selection.js').Selection} selection
 */
export function showDomain(host, selection) {
  const p = selection.profile;
  const m = p.meta;
  const d = m.domain;
  const samples = [0, 0, 0, 0];
  const rest = [0, 0, 0, 0];
  const totals = [0, 0, 0, 0];
  for (let r = 0; r < p.rows; r += 1) {
    const s = p.rowTag[r] & 3;
    samples[s] += p.rowCount[r];
    totals[s] += p.rowNs[r];
    if (p.entry[p.rowNode[r]] === p.notSampled) rest[s] += p.rowNs[r];
  }
  const wall = m.threads.reduce((/** @type {number} */ a, /** @type {any} */ t) => a + t.wall, 0);
  const repaired = m.threads.reduce((/** @type {number} */ a, /** @type {any} */ t) => a + t.repaired, 0);
  const audited = m.threads.filter((/** @type {any} */ t) => t.audit);
  const off = audited.reduce((/** @type {number} */ a, /** @type {any} */ t) => a + Math.abs(t.on_cpu.reduce((/** @type {number} */ x, /** @type {number} */ y) => x + y, 0) - t.on_cpu[2] - t.on_cpu[3] - t.audit[0]), 0);
  const auditedWall = audited.reduce((/** @type {number} */ a, /** @type {any} */ t) => a + t.wall, 0);
  const started = m.window.unix_ms > 0 ? new Date(m.window.unix_ms).toISOString().replace('T', ' ').slice(0, 19) : '';

  const states = STATES.map((id, s) => {
    const column = d.columns.find((/** @type {any[]} */ c) => c[0] === id);
    if (totals[s] === 0 && !column) return null;
    return [
      STATE_TITLES[s],
      badge(column && column[1] ? 'exact' : 'sampled', column && column[1] ? 'exact total' : 'estimated', () => [el('p', {}, column ? name(column[2]) : 'The recording does not say how.')]),
      column ? name(column[2]) : '',
      samples[s] > 0 ? `${count(samples[s])} samples; resolves shares down to ${percent(smallestShare(samples[s]))}` : 'no stack samples',
      rest[s] > 0 ? `${duration(rest[s])} (${percent(rest[s] / totals[s])}) without any sample` : '',
    ];
  }).filter((r) => r !== null);

  fill(
    host,
    el('p', {}, 'A profiler is an instrument with a range. This is what the numbers in this page are of, and what they are not.'),
    table('What was measured', [
      ['Target', name(d.target)],
      ['When', `${started ? `${started} UTC, ` : ''}${time(p.duration)} on ${m.window.clock || 'its clock'}`],
      ['Where', name(`${d.kernel}${d.cpus ? `, ${d.cpus} CPUs` : ''}`)],
      ['By', name(`${d.tool}, ${d.backend}${d.why ? ` (${d.why})` : ''}, as ${d.privilege || 'unknown'}`)],
      ...(isTime() ? [] : [['Values are in', name(d.unit)]]),
      ['Resolution in time', p.slices > 0 ? `${count(p.slices)} slices of ${time(m.slices.width)}` : 'none: the recording has no time slices'],
      ...d.events.map((/** @type {string[]} */ e) => [name(e[0]), name(`${e[1]}, ${e[2]}`)]),
    ]),
    table('How each state is known', /** @type {any} */ (states)),
    table('How well the books close', !isTime() ? [] : [
      ['Wall time', `${duration(wall)} of ${count(m.threads.length)} threads`],
      ['Corrected from the kernel’s counters', `${duration(repaired)} (${percent(wall > 0 ? repaired / wall : 0)})`],
      ...(audited.length > 0 ? [['On-CPU time against the kernel’s own', `${Math.round((off / Math.max(1, auditedWall)) * 1e6)} ppm of wall apart, over ${count(audited.length)} threads`]] : []),
      ...(m.scaling.borrowed_ns > 0 ? [['Shown by stacks of like threads', duration(m.scaling.borrowed_ns)]] : []),
      ...(m.scaling.unplaced_ns > 0 ? [['Samples the ledger has no time for', duration(m.scaling.unplaced_ns)]] : []),
    ]),
    d.limits.length > 0
      ? table('What was not seen', d.limits.map((/** @type {string[]} */ l) => [name(l[0]), l[1] ? name(`Remedy: ${l[1]}`) : 'no remedy known']))
      : null,
    m.losses.length > 0
      ? table('What was lost, cut short, or left without a name', m.losses.map((/** @type {[string, number]} */ l) => [name(l[0]), count(l[1])]))
      : el('section', {}, el('h3', {}, 'What was lost'), el('p', {}, 'Nothing was reported lost.')),
    table('What measuring cost', !isTime() ? [] : [
      ['Kernel programs', `${duration(m.cost.bpf_ns)} (${percent(m.cost.bpf_ns / p.duration)} of one CPU)`],
      ...(m.cost.displaced_ns > 0 ? [['Caches that they displaced (estimated)', `${duration(m.cost.displaced_ns)} (${percent(m.cost.displaced_ns / p.duration)} of one CPU)`]] : []),
      ['The recorder’s own CPU time', `${duration(m.cost.own_cpu_ns)} (${percent(m.cost.own_cpu_ns / p.duration)} of one CPU)`],
      ['Memory', `${bytes(m.cost.rss_bytes)} resident, ${bytes(m.cost.kernel_bytes)} in the kernel`],
      ['The target was stopped for', duration(m.cost.target_stopped_ns)],
    ]),
    d.notes.length > 0 ? el('section', {}, el('h3', {}, 'Notes'), el('ul', {}, ...d.notes.map((/** @type {string} */ n) => el('li', {}, name(n))))) : null,
    table('The host meanwhile', hostRows(m)),
    el(
      'section', {},
      el('h3', {}, 'How to sharpen it'),
      el('p', {}, 'Four times the time halves the intervals; a higher rate helps on-CPU stacks, a shorter period blocked ones. Odd rates keep the clock from beating with the program’s own.'),
      command(sharper(p, samples)),
    ),
  );
}

/** A command that records the same target more finely. @param {import('./profile.js').Profile} p @param {number[]} samples */
function sharper(p, samples) {
  const target = p.meta.domain.target;
  const pid = /^pids? ([\d, ]+)/.exec(target);
  const cmd = /^command: (.+)$/.exec(target);
  const seconds = Math.min(600, Math.ceil((p.duration / 1e9) * 4));
  const period = samples[2] < 2000 ? ' --off-cpu-period 250us' : '';
  const measured = pid ? ` -p ${pid[1].replace(/\s/g, '')} -d ${seconds}` : cmd ? ` -- ${cmd[1]}` : ` -p PID -d ${seconds}`;
  return `wallscope record -F 499${period}${measured}`;
}
