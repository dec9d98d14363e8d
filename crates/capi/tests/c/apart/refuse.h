/*
 * Tests failing allocations and thread creations: runs walks in child processes, in which the nth
 * one fails.
 */
#ifndef REFUSE_H
#define REFUSE_H

#include <stdbool.h>

/*
 * Calls BODY in a child in which the nth allocation (MEMORY) or thread creation (THREAD) fails. 0
 * means that none fails. If THREADS is true, all later thread creations fail as well.
 */
void walk_in_child(const char *name, void (*body)(void), long memory, long thread, bool threads);
/*
 * Waits for all children. Returns the numbers of allocations and threads of the last child that
 * completed.
 */
void wait_for_walks(long *memory, long *threads);
/* Prints the results of all walks. Returns the exit status. */
int report_walks(void);
/*
 * Ends the child successfully. It is called when a call has reported, as documented, that there is
 * no memory, which ends the walk.
 */
_Noreturn void end_of_walk(void);

#endif
