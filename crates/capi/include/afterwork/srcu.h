/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Sleepable read-copy-update by the kernel's names, over the library afterwork.
 *
 * A domain has readers of its own, which may sleep: a slow one holds up nobody else's grace periods. A section may end on
 * another thread than the one that began it.
 *
 * This header includes rcupdate.h, as the kernel's does, unless the file has already included
 * afterwork/urcu.h or liburcu's own headers. In that case rcu_head, rcu_dereference and similar
 * names are those of liburcu. A file that uses both must include liburcu's headers first.
 */
#ifndef AFTERWORK_SRCU_H
#define AFTERWORK_SRCU_H

#if defined(AFTERWORK_URCU_H) || defined(_URCU_CALL_RCU_H) || defined(_URCU_FLAVOR_H) || defined(_URCU_POINTER_H)
#include <stdbool.h>
#include <stddef.h>

struct rcu_head;
#else
#ifndef AFTERWORK_RCUPDATE_H
/* Only this header needs RCU's names, so afterwork/urcu.h may replace them. */
#define AFTERWORK_RCUPDATE_BY_SRCU
#endif
#include <afterwork/rcupdate.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

/**
 * struct srcu_struct - a domain
 *
 * Laid out by init_srcu_struct, or by DEFINE_SRCU: then its first use allocates. A child of fork lays it out anew: to wait for
 * one of its parent's ends the child with a line.
 */
struct srcu_struct {
	void *aw_private;
};

/* The number of distinct values of a domain's cookies that may be unfinished at one time. */
#define NUM_ACTIVE_SRCU_POLL_OLDSTATE 2

/* DEFINE_SRCU - define a domain. */
#define DEFINE_SRCU(name) struct srcu_struct name = { NULL }
#define DEFINE_STATIC_SRCU(name) static struct srcu_struct name = { NULL }

/* The library's own symbols; their contracts stand at the names below. */
int aw_init_srcu_struct(struct srcu_struct *ssp);
void aw_cleanup_srcu_struct(struct srcu_struct *ssp);
int aw_srcu_read_lock(struct srcu_struct *ssp);
void aw_srcu_read_unlock(struct srcu_struct *ssp, int idx);
void aw_synchronize_srcu(struct srcu_struct *ssp);
void aw_synchronize_srcu_expedited(struct srcu_struct *ssp);
void aw_srcu_barrier(struct srcu_struct *ssp);
unsigned long aw_get_state_synchronize_srcu(struct srcu_struct *ssp);
unsigned long aw_start_poll_synchronize_srcu(struct srcu_struct *ssp);
bool aw_poll_state_synchronize_srcu(struct srcu_struct *ssp, unsigned long cookie);
void aw_call_srcu(struct srcu_struct *ssp, struct rcu_head *head, void (*func)(struct rcu_head *head));

/* init_srcu_struct - lay out a domain; allocates. Returns 0, or -ENOMEM for NULL, which is misuse. */
static inline int init_srcu_struct(struct srcu_struct *ssp)
{
	return aw_init_srcu_struct(ssp);
}

/**
 * cleanup_srcu_struct - end a domain that nobody uses any more
 * @ssp: the domain; NULL is nothing
 *
 * What call_srcu was given and has not run runs afterwards, on a thread of the library's: who must not return before that calls
 * srcu_barrier first, as in the kernel.
 */
static inline void cleanup_srcu_struct(struct srcu_struct *ssp)
{
	aw_cleanup_srcu_struct(ssp);
}

/* srcu_read_lock - begin a section, which may sleep. Returns what ends it. Never waits. */
static inline int srcu_read_lock(struct srcu_struct *ssp)
{
	return aw_srcu_read_lock(ssp);
}

/*
 * srcu_read_unlock - end a section. An index that srcu_read_lock cannot have returned: misuse, nothing. One too many ends the process,
 * when a grace period of the domain finds more ends than sections.
 */
static inline void srcu_read_unlock(struct srcu_struct *ssp, int idx)
{
	aw_srcu_read_unlock(ssp, idx);
}

#define srcu_dereference(p, ssp) ((void)(ssp), __atomic_load_n(&(p), __ATOMIC_ACQUIRE))

/* synchronize_srcu - wait until all sections of the domain that run now have ended. Not inside of one: it never returns. */
static inline void synchronize_srcu(struct srcu_struct *ssp)
{
	aw_synchronize_srcu(ssp);
}

/* synchronize_srcu_expedited - synchronize_srcu, faster and dearer. */
static inline void synchronize_srcu_expedited(struct srcu_struct *ssp)
{
	aw_synchronize_srcu_expedited(ssp);
}

/**
 * call_srcu - have a function called after a grace period of a domain
 * @ssp: the domain
 * @head: part of what is to be freed
 * @func: what is called
 *
 * Differs from Linux: it allocates.
 */
static inline void call_srcu(struct srcu_struct *ssp, struct rcu_head *head, void (*func)(struct rcu_head *head))
{
	aw_call_srcu(ssp, head, func);
}

/* get_state_synchronize_srcu - remember this moment of a domain; begins no grace period. */
static inline unsigned long get_state_synchronize_srcu(struct srcu_struct *ssp)
{
	return aw_get_state_synchronize_srcu(ssp);
}

/* start_poll_synchronize_srcu - remember this moment of a domain, and see to it that a grace period comes. */
static inline unsigned long start_poll_synchronize_srcu(struct srcu_struct *ssp)
{
	return aw_start_poll_synchronize_srcu(ssp);
}

/* poll_state_synchronize_srcu - whether a grace period of the domain has passed since. */
static inline bool poll_state_synchronize_srcu(struct srcu_struct *ssp, unsigned long cookie)
{
	return aw_poll_state_synchronize_srcu(ssp, cookie);
}

/* srcu_down_read, srcu_up_read - srcu_read_lock and srcu_read_unlock: here these may be on two threads as well. */
static inline int srcu_down_read(struct srcu_struct *ssp)
{
	return aw_srcu_read_lock(ssp);
}

static inline void srcu_up_read(struct srcu_struct *ssp, int idx)
{
	aw_srcu_read_unlock(ssp, idx);
}

/* srcu_barrier - wait until all that call_srcu was given before has been called. */
static inline void srcu_barrier(struct srcu_struct *ssp)
{
	aw_srcu_barrier(ssp);
}

#ifdef __cplusplus
}
#endif

#endif
