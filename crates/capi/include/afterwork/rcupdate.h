/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Read-copy-update with the kernel's names, implemented by the library afterwork.
 *
 * Threads need no registration. Sections nest, and belong to their thread. liburcu uses the same
 * names, so a file must include only one of the two. workqueue.h describes how misuse is reported.
 * Misuse in this header means an unlock without a lock, which does nothing, and a wait inside a
 * section, which returns at once.
 */
#ifdef AFTERWORK_RCUPDATE_H
/* The program includes this header itself, after afterwork/srcu.h has included it. */
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
 * The number of distinct cookies of get_state_synchronize_rcu and start_poll_synchronize_rcu that
 * can be unfinished at the same time: those of the current and of the next grace period.
 */
#define NUM_ACTIVE_RCU_POLL_OLDSTATE 2

/* rcu_callback_t - a callback, which may free its head and the structure around it. */
typedef void (*rcu_callback_t)(struct rcu_head *head);

/* The library's own symbols, which are documented at the functions below that call them. */
void aw_rcu_read_lock(void);
int aw_rcu_read_lock_held(void);
void aw_synchronize_rcu(void);
void aw_synchronize_rcu_expedited(void);
void aw_rcu_barrier(void);
void aw_call_rcu(struct rcu_head *head, rcu_callback_t func);
bool aw_try_call_rcu(struct rcu_head *head, rcu_callback_t func);
void aw_kfree_rcu(struct rcu_head *head, size_t offset);
unsigned long aw_get_state_synchronize_rcu(void);
unsigned long aw_start_poll_synchronize_rcu(void);
bool aw_poll_state_synchronize_rcu(unsigned long cookie);
void aw_cond_synchronize_rcu(unsigned long cookie);

/**
 * rcu_read_lock - begin a read-side critical section
 *
 * Objects that rcu_dereference reads in the section are not freed before rcu_read_unlock. Never
 * waits. A thread's first section allocates memory. Must not be called in signal handlers. Nesting
 * deeper than 65534 ends the process.
 */
static inline void rcu_read_lock(void)
{
	afterwork_read_lock();
}

/*
 * rcu_read_unlock - end the most recent section. Without a section this is misuse, and does
 * nothing.
 */
static inline void rcu_read_unlock(void)
{
	afterwork_read_unlock();
}

/* rcu_read_lock_held - whether this thread is in a section. */
static inline int rcu_read_lock_held(void)
{
	return aw_rcu_read_lock_held();
}

/* Marks a pointer that readers load by rcu_dereference. It only informs readers of the source. */
#ifndef __rcu
#define __rcu
#endif

/*
 * rcu_dereference - load a pointer in a section
 * rcu_assign_pointer - store a pointer, so that its readers see all earlier writes
 * rcu_access_pointer - load a pointer that is only compared
 * rcu_dereference_protected - load a pointer that cannot change, because of the lock in C
 * RCU_INIT_POINTER - store NULL, or a pointer that no reader can reach
 * rcu_replace_pointer - rcu_assign_pointer under the lock in C; returns the old pointer
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
 * synchronize_rcu - wait until all current sections have ended
 *
 * Inside a section this is misuse, and returns at once.
 */
static inline void synchronize_rcu(void)
{
	aw_synchronize_rcu();
}

/*
 * synchronize_rcu_expedited - like synchronize_rcu, but faster and at a higher cost for other
 * threads.
 */
static inline void synchronize_rcu_expedited(void)
{
	aw_synchronize_rcu_expedited();
}

/**
 * call_rcu - call a function after a grace period
 * @head: a part of the structure to be freed
 * @func: the function, which a thread of the library calls
 *
 * Does not allocate. Waits for a moment if more than rcu.qhimark callbacks are pending. May be
 * called inside a section or a callback, where it does not wait. The function may call call_rcu,
 * but must not wait for callbacks. If an exception leaves the function, the process ends.
 */
static inline void call_rcu(struct rcu_head *head, rcu_callback_t func)
{
	aw_call_rcu(head, func);
}

/**
 * try_call_rcu - call a function after a grace period, unless too many callbacks are pending
 * @head: a part of the structure to be freed
 * @func: the function, which a thread of the library calls
 *
 * If this CPU's list contains rcu.qhimark callbacks or more, this does nothing and returns false. A
 * caller that may wait can then call synchronize_rcu and free the structure itself. Never waits.
 *
 * Differs from Linux: the kernel has only call_rcu.
 */
static inline bool try_call_rcu(struct rcu_head *head, rcu_callback_t func)
{
	return aw_try_call_rcu(head, func);
}

/* call_rcu_hurry - the same as call_rcu, because call_rcu never delays callbacks. */
static inline void call_rcu_hurry(struct rcu_head *head, rcu_callback_t func)
{
	aw_call_rcu(head, func);
}

/*
 * kfree_rcu - free a structure after a grace period
 * kvfree_rcu - the same
 * kfree_rcu_mightsleep, kvfree_rcu_mightsleep - the same without a head; these wait for the grace
 * period
 *
 * P is a pointer that may be passed to free(). F is its member of type struct rcu_head, at an
 * offset below 4096. A larger offset is misuse, and is ignored. NULL is ignored as well. The first
 * two macros never wait, and do not allocate.
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

/*
 * rcu_barrier - wait until all earlier callbacks have run. Inside a section this is misuse, and
 * returns at once.
 */
static inline void rcu_barrier(void)
{
	aw_rcu_barrier();
}

/* get_state_synchronize_rcu - return a cookie for this moment, without starting a grace period. */
static inline unsigned long get_state_synchronize_rcu(void)
{
	return aw_get_state_synchronize_rcu();
}

/*
 * start_poll_synchronize_rcu - return a cookie for this moment, and ensure that a grace period
 * starts.
 */
static inline unsigned long start_poll_synchronize_rcu(void)
{
	return aw_start_poll_synchronize_rcu();
}

/* poll_state_synchronize_rcu - whether a full grace period has passed since the cookie's moment. */
static inline bool poll_state_synchronize_rcu(unsigned long cookie)
{
	return aw_poll_state_synchronize_rcu(cookie);
}

/*
 * cond_synchronize_rcu - wait until poll_state_synchronize_rcu returns true. Inside a section this
 * is misuse, and returns at once.
 */
static inline void cond_synchronize_rcu(unsigned long cookie)
{
	aw_cond_synchronize_rcu(cookie);
}

/* get_completed_synchronize_rcu - return a cookie whose grace period has already ended. */
static inline unsigned long get_completed_synchronize_rcu(void)
{
	return 0;
}

/* same_state_synchronize_rcu - whether two cookies belong to the same grace period. */
static inline bool same_state_synchronize_rcu(unsigned long one, unsigned long other)
{
	return one == other;
}

/* These functions do nothing, because heads need no initialization or destruction. */
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

/* rcu_head_init - mark a head before call_rcu, for rcu_head_after_call_rcu. */
static inline void rcu_head_init(struct rcu_head *head)
{
	head->func = (rcu_callback_t)~(uintptr_t)0;
}

/**
 * rcu_head_after_call_rcu - report whether a head was passed to call_rcu
 * @head: the head, after rcu_head_init, and before its function is called
 * @func: the function that is passed to call_rcu with it
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
