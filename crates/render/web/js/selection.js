// What is chosen of a recording: its rows with their weights, and sums and intervals over them.

import { STATES } from './profile.js';
import { join, shareInterval } from './stats.js';

/** Rows with their weights under one filter. */
export class Selection {
  /**
   * @param {import('./profile.js').Profile} profile
   * @param {Float64Array} weight ns by row
   * @param {Uint8Array | null} mask slices that count; `null`: all
   */
  constructor(profile, weight, mask) {
    this.profile = profile;
    this.weight = weight;
    this.mask = mask;
    const n = weight.length;
    const prefix = new Float64Array(n + 1);
    const present = [0, 0, 0, 0];
    for (let r = 0; r < n; r += 1) {
      prefix[r + 1] = prefix[r] + weight[r];
      present[profile.rowTag[r] & 3] += weight[r];
    }
    this.prefix = prefix;
    this.total = prefix[n];
    this.byState = present;
    /** @type {(Float64Array | undefined)[]} */
    this.statePrefix = [];
    /** @type {Float64Array | undefined} by row, what its time within the mask was scaled by */
    this.scale = undefined;
    /** @type {{time: Float64Array[], samples: number[]} | undefined} */
    this.whole = undefined;
    /** @type {{self: Float64Array, total: Float64Array} | undefined} */
    this.entries = undefined;
  }

  /** Time of a subtree, ns. @param {number} node */
  time(node) {
    const p = this.profile;
    return this.prefix[p.last[node]] - this.prefix[p.first[node]];
  }

  /** Time of a node without its children, ns. @param {number} node */
  self(node) {
    const p = this.profile;
    return this.prefix[p.last[node]] - this.prefix[p.own[node]];
  }

  /** Prefix sums of one state's weights. @param {number} state */
  stateSums(state) {
    let sums = this.statePrefix[state];
    if (!sums) {
      const { rowTag } = this.profile;
      sums = new Float64Array(this.weight.length + 1);
      for (let r = 0; r < this.weight.length; r += 1) {
        sums[r + 1] = sums[r] + ((rowTag[r] & 3) === state ? this.weight[r] : 0);
      }
      this.statePrefix[state] = sums;
    }
    return sums;
  }

  /** Time of rows `from..to` in one state, ns. @param {number} from @param {number} to @param {number} state */
  stateTime(from, to, state) {
    if (this.byState[state] === 0) return 0;
    if (this.byState[state] === this.total) return this.prefix[to] - this.prefix[from];
    const sums = this.stateSums(state);
    return sums[to] - sums[from];
  }

  /**
   * Sampled time by state and block, and samples by state, of some runs of rows. Time that was
   * not sampled has no place here.
   * @param {ArrayLike<number>} ranges from, to, from, to…
   */
  blocks(ranges) {
    const p = this.profile;
    const time = STATES.map(() => new Float64Array(p.blocks));
    const samples = [0, 0, 0, 0];
    for (let i = 0; i < ranges.length; i += 2) {
      for (let r = ranges[i]; r < ranges[i + 1]; r += 1) {
        if (this.weight[r] === 0 || p.rowCount[r] === 0) continue;
        const state = p.rowTag[r] & 3;
        const scale = this.scale ? this.scale[r] : 1;
        if (p.sliceStart[r] === p.sliceStart[r + 1]) {
          time[state][0] += this.weight[r];
          samples[state] += p.rowCount[r];
        }
        for (let k = p.sliceStart[r]; k < p.sliceStart[r + 1]; k += 1) {
          if (this.mask && !this.mask[p.slice[k]]) continue;
          time[state][p.block(p.slice[k])] += p.sliceNs[k] * scale;
          samples[state] += p.sliceCount[k];
        }
      }
    }
    return { time, samples };
  }

  /** [`blocks`] of everything. */
  wholeBlocks() {
    this.whole ??= this.blocks([0, this.weight.length]);
    return this.whole;
  }

  /**
   * The 95 % interval of the share that runs of rows have in this selection, and on how many
   * samples it rests.
   * @param {ArrayLike<number>} ranges
   */
  interval(ranges) {
    const whole = this.wholeBlocks();
    const part = this.blocks(ranges);
    const states = [];
    let samples = 0;
    for (let s = 0; s < STATES.length; s += 1) {
      if (this.byState[s] === 0) continue;
      samples += part.samples[s];
      let own = 0;
      for (let i = 0; i < ranges.length; i += 2) own += this.stateTime(ranges[i], ranges[i + 1], s);
      const sampled = whole.samples[s] > 0;
      const share = own / this.byState[s];
      const interval = sampled
        ? shareInterval(part.time[s], whole.time[s], whole.samples[s])
        : { low: share, high: share };
      states.push({
        weight: this.byState[s] / this.total,
        share,
        interval: { low: Math.min(interval.low, share), high: Math.max(interval.high, share) },
      });
    }
    return { ...join(states), samples };
  }

  /** Self and total time by entry; a recursive function counts once. */
  byEntry() {
    if (!this.entries) {
      const p = this.profile;
      const self = new Float64Array(p.names.length);
      const total = new Float64Array(p.names.length);
      for (let r = 0; r < this.weight.length; r += 1) self[p.rowBlame[r]] += this.weight[r];
      const inside = new Uint32Array(p.names.length);
      const { entry, end, first, last } = p;
      const { prefix } = this;
      for (let i = 1; i < p.nodes; i += 1) {
        const e = entry[i];
        if (i >= inside[e]) {
          inside[e] = end[i];
          total[e] += prefix[last[i]] - prefix[first[i]];
        }
      }
      this.entries = { self, total };
    }
    return this.entries;
  }

  /**
   * Self and total time by entry where only own code is shown. A foreign entry has the time that
   * its frames hold there, and no more.
   * @param {import('./mine.js').Mine} mine
   */
  byOwnEntry(mine) {
    const self = new Float64Array(this.profile.names.length);
    const holders = mine.rowHolders(this.profile);
    for (let r = 0; r < this.weight.length; r += 1) self[holders[r]] += this.weight[r];
    const total = this.byEntry().total.map((ns, e) => (mine.entry[e] ? ns : self[e]));
    return { self, total };
  }

  /** Outermost nodes of an entry that have time. @param {number} entry @returns {number[]} */
  nodesOf(entry) {
    const p = this.profile;
    const out = [];
    for (let i = 1; i < p.nodes; ) {
      if (p.entry[i] === entry) {
        if (this.time(i) > 0) out.push(i);
        i = p.end[i];
      } else {
        i += 1;
      }
    }
    return out;
  }

  /** Runs of rows under nodes. @param {ArrayLike<number>} nodes */
  ranges(nodes) {
    const out = new Uint32Array(nodes.length * 2);
    for (let i = 0; i < nodes.length; i += 1) {
      out[2 * i] = this.profile.first[nodes[i]];
      out[2 * i + 1] = this.profile.last[nodes[i]];
    }
    return out;
  }
}
