// The verdict on top. Its text is part of the page's HTML; here its buttons get their meaning: each
// selects the time that a statement rests on.

import { byId, copy, say } from './dom.js';
import { plainLook } from './filter.js';

/**
 * The time that a statement rests on, as the recorder's engine names it.
 * @typedef {object} Choice
 * @property {string} view
 * @property {string[]} reasons empty: all
 * @property {number[]} threads by index; empty: all
 * @property {[number, number] | null} time first slice, and the slice after the last
 * @property {boolean} idle whether idle time is part of it
 * @property {string | null} function that its stacks lead through
 * @property {boolean} only whether stacks without that function are left out
 * @property {boolean} tasks whether it is time of a runtime's tasks, and not of threads
 */

/**
 * A choice as the page's own filters. Its function is picked; stacks without it are left out only
 * where the statement is of that function alone.
 * @param {Choice} choice
 * @param {import('./profile.js').Profile} profile
 * @returns {Partial<import('./filter.js').Look>}
 */
export function lookOf(choice, profile) {
  return {
    ...plainLook(),
    view: choice.view,
    reasons: choice.reasons,
    threads: choice.threads,
    time: choice.time ? [choice.time] : [],
    idle: choice.idle ? 'show' : 'hide',
    query: choice.only && choice.function ? `^${choice.function.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')}$` : '',
    only: choice.only,
    tab: choice.tasks ? 'tasks' : 'flame',
    // The panel of a function is about threads.
    pick: choice.function && !choice.tasks ? profile.names.indexOf(choice.function) : -1,
  };
}

/** Scrolls to the filters and the picture below them, unless the picture is in sight. */
function toPicture() {
  const { top } = byId('main').getBoundingClientRect();
  if (top > 0 && top < innerHeight / 2) return;
  const above = byId('top');
  scrollTo({ top: above.offsetTop + above.offsetHeight });
}

/** @param {import('./main.js').Page} page */
export function wireVerdict(page) {
  const host = document.getElementById('verdict');
  if (!host) return;
  /** @type {Choice[]} */
  const choices = page.profile.meta.choices ?? [];
  for (const button of /** @type {NodeListOf<HTMLElement>} */ (host.querySelectorAll('[data-choice]'))) {
    const choice = choices[Number(button.dataset.choice)];
    if (!choice) continue;
    button.hidden = false;
    button.addEventListener('click', () => {
      const { icicle, leaf, fold, mine, flip } = page.look;
      const look = { ...lookOf(choice, page.profile), icicle, leaf, fold, mine, flip };
      // On a phone the panel of the picked function would cover the picture.
      if (innerWidth <= 900) look.pick = -1;
      page.change(look);
      toPicture();
    });
  }
  for (const button of /** @type {NodeListOf<HTMLElement>} */ (host.querySelectorAll('[data-copy]'))) {
    const command = button.previousElementSibling?.textContent ?? '';
    button.hidden = false;
    button.setAttribute('aria-label', 'copy the command');
    button.addEventListener('click', async () => say((await copy(command)) ? 'The command is copied.' : 'Copying is not allowed here.'));
  }
}
