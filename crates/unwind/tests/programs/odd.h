/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Hooks that the unwinder's test programs share. */
#ifndef ODD_H
#define ODD_H
/* Called at the innermost point of each scenario. */
void odd_bottom(void);
/* Stops (0) and resumes (1) stepping where signals are blocked, as while a thread is created. */
void odd_step(int on);
/* Reports new mappings. */
void odd_mapped(void);
/* Runs all scenarios. */
void odd_all(void);
extern volatile long odd_sink;
#endif
