/* Memory and threads that the library cannot have: a walk, in children, of which the nth allocation or thread is refused. */
#ifndef REFUSE_H
#define REFUSE_H

#include <stdbool.h>

/* Calls BODY in a child, with the nth of these refused; 0 for none. THREADS: and all threads after that one too. */
void walk_in_child(const char *name, void (*body)(void), long memory, long thread, bool threads);
/* Waits for all children; returns how many allocations and threads the last one that went to its end asked for. */
void wait_for_walks(long *memory, long *threads);
/* Says what became of all walks; returns the exit status. */
int tell_of_walks(void);
/* Ends the child well: a call said that there is no memory, as documented, and what follows would go on without. */
_Noreturn void end_of_walk(void);

#endif
