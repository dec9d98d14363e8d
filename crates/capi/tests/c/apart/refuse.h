/* Failing allocations and thread creations: runs walks in children, in which the nth one fails. */
#ifndef REFUSE_H
#define REFUSE_H

#include <stdbool.h>

/*
 * Calls BODY in a child, in which the nth allocation or thread creation fails; 0 for none. If
 * THREADS, all later thread creations fail too.
 */
void walk_in_child(const char *name, void (*body)(void), long memory, long thread, bool threads);
/* Waits for all children. Returns the allocations and threads of the last complete one. */
void wait_for_walks(long *memory, long *threads);
/* Prints the results of all walks. Returns the exit status. */
int report_walks(void);
/*
 * Ends the child successfully: a call reported no memory, as documented, which ends the walk.
 */
_Noreturn void end_of_walk(void);

#endif
