/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Read-copy-update by the kernel's names, over the library afterwork.
 *
 * Threads need no registration. Sections nest, and belong to their thread. The names are those of liburcu as well: a file
 * includes this or that. What is told of misuse, and what that does, stands in workqueue.h; here it is an unlock without a
 * lock, which then does nothing, and a wait inside a section, which then does not wait.
 */
#ifdef AFTERWORK_RCUPDATE_H
/* The file includes this header itself, after afterwork/srcu.h has included it. */
#undef AFTERWORK_RCUPDATE_BY_SRCU
#else
#define AFTERWORK_RCUPDATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#if defined(AFTERWORK_URCU_H) || defined(_URCU_CALL_RCU_H)
#error "include afterwork/rcupdate.h or a header of liburcu's names, not both"
#endif
#include "rcu_inline.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The number of distinct values of cookies of get_state_synchronize_rcu and
 * start_poll_synchronize_rcu that may be unfinished at one time: those of the current grace period
 * and of the next one.
 */
#define NUM_ACTIVE_RCU_POLL_OLDSTATE 2

/* rcu_callback_t - what is called after a grace period: with the head, which it may free with what is around it. */
typedef void (*rcu_callback_t)(struct rcu_head *head);

/* The library's own symbols; their contracts stand at the names below. */
void aw_rcu_read_lock(void);
int aw_rcu_read_lock_held(void);
void aw_synchronize_rcu(void);
void aw_synchronize_rcu_expedited(void);
void aw_rcu_barrier(void);
void aw_call_rcu(struct rcu_head *head, rcu_callback_t func);
void aw_kfree_rcu(struct rcu_head *head, size_t offset);
unsigned long aw_get_state_synchronize_rcu(void);
unsigned long aw_start_poll_synchronize_rcu(void);
bool aw_poll_state_synchronize_rcu(unsigned long cookie);
void aw_cond_synchronize_rcu(unsigned long cookie);

/**
 * rcu_read_lock - begin a read-side critical section
 *
 * What is read by rcu_dereference in it is not freed before rcu_read_unlock. Never waits; the first one of a thread allocates.
 * Not in a signal handler. Deeper than 65534 ends the process.
 */
static inline void rcu_read_lock(void)
{
	afterwork_read_lock();
}

/* rcu_read_unlock - end the section that this thread began last. Without one: misuse, nothing. */
static inline void rcu_read_unlock(void)
{
	afterwork_read_unlock();
}

/* rcu_read_lock_held - whether this thread is in a section. */
static inline int rcu_read_lock_held(void)
{
	return aw_rcu_read_lock_held();
}

/* Marks a pointer that readers load by rcu_dereference; for the reader of the source. */
#ifndef __rcu
#define __rcu
#endif

/*
 * rcu_dereference - load a pointer in a section
 * rcu_assign_pointer - store one so that readers see all that was written before
 * rcu_access_pointer - load one that is only compared
 * rcu_dereference_protected - load one that nobody else changes now, by the lock that C names
 * RCU_INIT_POINTER - store one that no reader can reach, or NULL
 * rcu_replace_pointer - rcu_assign_pointer, with the old one as the answer, under the lock that C names
 */
#define rcu_dereference(p) __atomic_load_n(&(p), __ATOMIC_ACQUIRE)
#define rcu_dereference_check(p, c) ((void)(c), rcu_dereference(p))
#define rcu_dereference_raw(p) rcu_dereference(p)
#define rcu_access_pointer(p) __atomic_load_n(&(p), __ATOMIC_RELAXED)
#define rcu_dereference_protected(p, c) ((void)(c), __atomic_load_n(&(p), __ATOMIC_RELAXED))
#define rcu_assign_pointer(p, v) AFTERWORK_STORE(&(p), (v), __ATOMIC_RELEASE)
#define RCU_INIT_POINTER(p, v) AFTERWORK_STORE(&(p), (v), __ATOMIC_RELAXED)
#define rcu_replace_pointer(p, v, c) ((void)(c), AFTERWORK_EXCHANGE(&(p), (v), __ATOMIC_ACQ_REL))

/**
 * synchronize_rcu - wait until all sections that run now have ended
 *
 * Inside a section: misuse; goes on without waiting.
 */
static inline void synchronize_rcu(void)
{
	aw_synchronize_rcu();
}

/* synchronize_rcu_expedited - synchronize_rcu, faster and dearer for others. */
static inline void synchronize_rcu_expedited(void)
{
	aw_synchronize_rcu_expedited();
}

/**
 * call_rcu - have a function called after a grace period
 * @head: part of what is to be freed
 * @func: what is called, on a thread of the library's
 *
 * Never waits, and allocates nothing; in a section too. The function may call call_rcu, and must not wait for callbacks. One
 * that unwinds ends the process.
 */
static inline void call_rcu(struct rcu_head *head, rcu_callback_t func)
{
	aw_call_rcu(head, func);
}

/* call_rcu_hurry - call_rcu, which does not dawdle. */
static inline void call_rcu_hurry(struct rcu_head *head, rcu_callback_t func)
{
	aw_call_rcu(head, func);
}

/*
 * kfree_rcu - free a structure after a grace period
 * kvfree_rcu - the same
 * kfree_rcu_mightsleep, kvfree_rcu_mightsleep - the same of what has no head: wait for the grace period here
 *
 * P is what free() takes; F is its member of struct rcu_head, less than 4096 bytes behind its beginning: more is misuse, nothing.
 * NULL is nothing. Never waits, and allocates nothing.
 */
#define kfree_rcu(p, f)                                                                            \
	do {                                                                                       \
		__typeof__(p) aw_p_ = (p);                                                         \
		if (aw_p_)                                                                         \
			aw_kfree_rcu(&aw_p_->f, (size_t)((char *)&aw_p_->f - (char *)aw_p_)); \
	} while (0)
#define kvfree_rcu(p, f) kfree_rcu(p, f)
#define kfree_rcu_mightsleep(p)        \
	do {                           \
		void *aw_p_ = (p);     \
		if (aw_p_) {           \
			aw_synchronize_rcu(); \
			free(aw_p_);   \
		}                      \
	} while (0)
#define kvfree_rcu_mightsleep(p) kfree_rcu_mightsleep(p)

/* rcu_barrier - wait until all that call_rcu was given before has been called. Inside a section: misuse, nothing. */
static inline void rcu_barrier(void)
{
	aw_rcu_barrier();
}

/* get_state_synchronize_rcu - remember this moment; begins no grace period. */
static inline unsigned long get_state_synchronize_rcu(void)
{
	return aw_get_state_synchronize_rcu();
}

/* start_poll_synchronize_rcu - remember this moment, and see to it that a grace period comes. */
static inline unsigned long start_poll_synchronize_rcu(void)
{
	return aw_start_poll_synchronize_rcu();
}

/* poll_state_synchronize_rcu - whether a grace period has passed since. */
static inline bool poll_state_synchronize_rcu(unsigned long cookie)
{
	return aw_poll_state_synchronize_rcu(cookie);
}

/* cond_synchronize_rcu - wait until one has. Inside a section: misuse, nothing. */
static inline void cond_synchronize_rcu(unsigned long cookie)
{
	aw_cond_synchronize_rcu(cookie);
}

/* get_completed_synchronize_rcu - a cookie whose grace period has passed. */
static inline unsigned long get_completed_synchronize_rcu(void)
{
	return 0;
}

/* same_state_synchronize_rcu - whether two cookies are of one grace period. */
static inline bool same_state_synchronize_rcu(unsigned long one, unsigned long other)
{
	return one == other;
}

/* Nothing is to be laid out or destroyed; for code that says so. */
static inline void init_rcu_head(struct rcu_head *head)
{
	(void)head;
}

static inline void destroy_rcu_head(struct rcu_head *head)
{
	(void)head;
}

static inline void init_rcu_head_on_stack(struct rcu_head *head)
{
	(void)head;
}

static inline void destroy_rcu_head_on_stack(struct rcu_head *head)
{
	(void)head;
}

/* rcu_head_init - mark a head that was not yet passed to call_rcu, for rcu_head_after_call_rcu. */
static inline void rcu_head_init(struct rcu_head *head)
{
	head->func = (rcu_callback_t)~(uintptr_t)0;
}

/**
 * rcu_head_after_call_rcu - report whether a head was passed to call_rcu
 * @head: the head, after rcu_head_init, and before its function is called
 * @func: the function that call_rcu was given with it
 *
 * Another thread may call call_rcu at the same time.
 */
static inline bool rcu_head_after_call_rcu(struct rcu_head *head, rcu_callback_t func)
{
	return __atomic_load_n(&head->func, __ATOMIC_RELAXED) == func;
}

#ifdef __cplusplus
}
#endif

#endif
