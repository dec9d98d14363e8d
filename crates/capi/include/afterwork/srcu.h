/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Sleepable read-copy-update with the kernel's names, implemented by the library afterwork.
 *
 * Each domain has its own readers, which may sleep. A slow reader delays only the grace periods of
 * its domain. A section may end on a different thread from the one that began it.
 *
 * This header includes rcupdate.h, as the kernel's does, unless the program has already included
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
/* Only this header needs the names from rcupdate.h, so afterwork/urcu.h may replace them. */
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
 * It is initialized by init_srcu_struct or DEFINE_SRCU. With DEFINE_SRCU, its first use allocates
 * memory. A child of fork must initialize it again. Waiting for a domain of its parent ends the
 * child with a message.
 */
struct srcu_struct {
	void *aw_private;
};

/* The number of distinct cookies of a domain that can be unfinished at the same time. */
#define NUM_ACTIVE_SRCU_POLL_OLDSTATE 2

/* DEFINE_SRCU - define a domain. */
#define DEFINE_SRCU(name) struct srcu_struct name = { NULL }
#define DEFINE_STATIC_SRCU(name) static struct srcu_struct name = { NULL }

/* The library's own symbols, which are documented at the functions below that call them. */
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

/*
 * init_srcu_struct - initialize a domain. Allocates. Returns 0, or -ENOMEM for NULL, which is
 * misuse.
 */
static inline int init_srcu_struct(struct srcu_struct *ssp)
{
	return aw_init_srcu_struct(ssp);
}

/**
 * cleanup_srcu_struct - destroy a domain that is no longer used
 * @ssp: the domain; NULL is ignored
 *
 * Pending callbacks of call_srcu run later, on a thread of the library. To wait for them, call
 * srcu_barrier first, as in the kernel.
 */
static inline void cleanup_srcu_struct(struct srcu_struct *ssp)
{
	aw_cleanup_srcu_struct(ssp);
}

/* srcu_read_lock - begin a section, which may sleep. Returns its index. Never waits. */
static inline int srcu_read_lock(struct srcu_struct *ssp)
{
	return aw_srcu_read_lock(ssp);
}

/*
 * srcu_read_unlock - end a section. An index that srcu_read_lock cannot have returned is misuse,
 * and ignored. Ending too many sections ends the process, when a grace period detects it.
 */
static inline void srcu_read_unlock(struct srcu_struct *ssp, int idx)
{
	aw_srcu_read_unlock(ssp, idx);
}

#define srcu_dereference(p, ssp) ((void)(ssp), __atomic_load_n(&(p), __ATOMIC_ACQUIRE))

/*
 * synchronize_srcu - wait until all current sections of a domain end. Deadlocks inside a section of
 * the same domain.
 */
static inline void synchronize_srcu(struct srcu_struct *ssp)
{
	aw_synchronize_srcu(ssp);
}

/* synchronize_srcu_expedited - like synchronize_srcu, but faster and at a higher cost. */
static inline void synchronize_srcu_expedited(struct srcu_struct *ssp)
{
	aw_synchronize_srcu_expedited(ssp);
}

/**
 * call_srcu - call a function after a grace period of a domain
 * @ssp: the domain
 * @head: a part of the structure to be freed
 * @func: the function
 *
 * Differs from Linux: this allocates memory.
 */
static inline void call_srcu(struct srcu_struct *ssp, struct rcu_head *head, void (*func)(struct rcu_head *head))
{
	aw_call_srcu(ssp, head, func);
}

/*
 * get_state_synchronize_srcu - return a cookie of a domain for this moment, without starting a
 * grace period.
 */
static inline unsigned long get_state_synchronize_srcu(struct srcu_struct *ssp)
{
	return aw_get_state_synchronize_srcu(ssp);
}

/* start_poll_synchronize_srcu - the same, but ensure that a grace period starts. */
static inline unsigned long start_poll_synchronize_srcu(struct srcu_struct *ssp)
{
	return aw_start_poll_synchronize_srcu(ssp);
}

/*
 * poll_state_synchronize_srcu - whether a full grace period of the domain has passed since the
 * cookie's moment.
 */
static inline bool poll_state_synchronize_srcu(struct srcu_struct *ssp, unsigned long cookie)
{
	return aw_poll_state_synchronize_srcu(ssp, cookie);
}

/*
 * srcu_down_read, srcu_up_read - srcu_read_lock and srcu_read_unlock, which may be called on
 * different threads.
 */
static inline int srcu_down_read(struct srcu_struct *ssp)
{
	return aw_srcu_read_lock(ssp);
}

static inline void srcu_up_read(struct srcu_struct *ssp, int idx)
{
	aw_srcu_read_unlock(ssp, idx);
}

/* srcu_barrier - wait until all callbacks of earlier calls of call_srcu have run. */
static inline void srcu_barrier(struct srcu_struct *ssp)
{
	aw_srcu_barrier(ssp);
}

#ifdef __cplusplus
}
#endif

#endif
