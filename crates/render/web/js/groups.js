// Groups of rows of time: each becomes one frame of a derived picture.

/**
 * Cursors of one group: runs of rows, each with the recorded node it has come to.
 * @typedef {{ranges: number[], at: number[], weight: number}} Group
 */

/**
 * Adds a run of rows to the group of an entry.
 * @param {Map<number, Group>} groups
 * @param {number} entry
 * @param {{from: number, to: number, at: number}} run rows, and the node they have come to; −1: they go no further
 * @param {number} time
 */
export function put(groups, entry, { from, to, at }, time) {
  let g = groups.get(entry);
  if (!g) {
    g = { ranges: [], at: [], weight: 0 };
    groups.set(entry, g);
  }
  g.ranges.push(from, to);
  if (at >= 0) g.at.push(at);
  g.weight += time;
}
