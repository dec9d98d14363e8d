/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The measured code, compiled against afterwork with -DSIDE=ours, and against liburcu with
 * -DSIDE=theirs.
 */
#ifdef IS_OURS
#include <afterwork/urcu.h>
#else
#define _LGPL_SOURCE
#include <urcu.h>
#endif

#include <stdlib.h>

#include "sides.h"

#define PASTE_(side, name) side##_##name
#define PASTE(side, name) PASTE_(side, name)
#define NAME(name) PASTE(SIDE, name)

static long value = 1, *place = &value;

static void begin(void)
{
	rcu_register_thread();
}

static void end(void)
{
	rcu_unregister_thread();
}

static long pairs(long count)
{
	long sum = 0;

	for (long i = 0; i < count; i++) {
		rcu_read_lock();
		sum += *rcu_dereference(place);
		rcu_read_unlock();
	}
	return sum;
}

static long nested(long count)
{
	long sum;

	rcu_read_lock();
	sum = pairs(count);
	rcu_read_unlock();
	return sum;
}

static void drop(struct rcu_head *head)
{
	free(head);
}

/* Waits until all callbacks have run. */
static long calls(long count)
{
	for (long i = 0; i < count; i++) {
		struct rcu_head *head = malloc(sizeof(*head));

		if (!head)
			abort();
		call_rcu(head, drop);
	}
	rcu_barrier();
	return count;
}

static long waits(long count)
{
	for (long i = 0; i < count; i++)
		synchronize_rcu();
	return count;
}

const struct side NAME(side) = { begin, end, pairs, nested, calls, waits };
