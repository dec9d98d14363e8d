/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * All flavors of liburcu with their own names (urcu_memb_read_lock, …), implemented by afterwork.
 * urcu.h and the headers of the flavors include this header, and map the common names to one
 * flavor.
 *
 * memb, mb, signal and bp are the same: their readers use sections, and need no registration. The
 * readers of qsbr report quiescent states instead. All flavors share their grace periods: a grace
 * period waits for the sections of all flavors, and for the reports of all online readers.
 */
#ifndef AFTERWORK_URCU_FLAVORS_H
#define AFTERWORK_URCU_FLAVORS_H

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "rcu_inline.h"

#ifdef AFTERWORK_RCUPDATE_BY_SRCU
/* afterwork/srcu.h has defined these names, but no longer needs them. A flavor redefines them. */
#undef rcu_dereference
#undef rcu_assign_pointer
#undef AFTERWORK_RCUPDATE_BY_SRCU
#elif defined(AFTERWORK_RCUPDATE_H)
#error "include afterwork/rcupdate.h or a header of liburcu's names, not both"
#endif
#if defined(_URCU_CALL_RCU_H) || defined(_URCU_FLAVOR_H)
#error "include afterwork/urcu.h in place of liburcu's own urcu.h, not beside it"
#endif
#define AFTERWORK_URCU_H

/*
 * These are include guards of liburcu. They make its headers with the same declarations count as
 * included.
 */
#define _URCU_CALL_RCU_H
#define _URCU_DEFER_H
#define _URCU_FLAVOR_H
#ifndef _URCU_POINTER_H
#define _URCU_POINTER_H
#define AFTERWORK_URCU_POINTERS
#endif

/*
 * The headers that liburcu's headers include: atomics, barriers, container_of, a queue. If
 * liburcu's own headers are installed, they are used. Otherwise the most common parts are defined
 * here.
 */
#ifdef __has_include
#if __has_include(<urcu/uatomic.h>) && __has_include(<urcu/tls-compat.h>)
#include <urcu/arch.h>
#include <urcu/compiler.h>
#include <urcu/system.h>
#include <urcu/tls-compat.h>
#include <urcu/uatomic.h>
#define AFTERWORK_URCU_HAS_ATOMICS
#endif
#if __has_include(<urcu/wfcqueue.h>)
#include <urcu/wfcqueue.h>
#endif
#endif
#ifndef AFTERWORK_URCU_HAS_ATOMICS
#define caa_likely(cond) AFTERWORK_LIKELY(cond)
#define caa_unlikely(cond) AFTERWORK_UNLIKELY(cond)
#define caa_container_of(ptr, type, member) ((type *)(void *)((char *)(ptr) - offsetof(type, member)))
#define cmm_barrier() AFTERWORK_LIGHT_BARRIER()
#define cmm_mb() __atomic_thread_fence(__ATOMIC_SEQ_CST)
#define cmm_smp_mb() cmm_mb()
#define cmm_smp_rmb() __atomic_thread_fence(__ATOMIC_ACQUIRE)
#define cmm_smp_wmb() __atomic_thread_fence(__ATOMIC_RELEASE)
#define CMM_LOAD_SHARED(p) __atomic_load_n(&(p), __ATOMIC_RELAXED)
#define CMM_STORE_SHARED(p, v) __atomic_store_n(&(p), (v), __ATOMIC_RELAXED)
#define CMM_ACCESS_ONCE(p) (*(__volatile__ __typeof__(p) *)&(p))
#define uatomic_read(p) __atomic_load_n((p), __ATOMIC_RELAXED)
#define uatomic_set(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define uatomic_add(p, v) ((void)__atomic_fetch_add((p), (v), __ATOMIC_SEQ_CST))
#define uatomic_sub(p, v) ((void)__atomic_fetch_sub((p), (v), __ATOMIC_SEQ_CST))
#define uatomic_inc(p) uatomic_add((p), 1)
#define uatomic_dec(p) uatomic_sub((p), 1)
#define uatomic_add_return(p, v) __atomic_add_fetch((p), (v), __ATOMIC_SEQ_CST)
#define uatomic_sub_return(p, v) __atomic_sub_fetch((p), (v), __ATOMIC_SEQ_CST)
#define uatomic_xchg(p, v) __atomic_exchange_n((p), (v), __ATOMIC_SEQ_CST)
#endif

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The identity of a callback thread. One thread runs all callbacks, whatever the flags and the CPU
 * are.
 */
struct call_rcu_data;

#define URCU_CALL_RCU_RT (1U << 0)

/* The functions of liburcu's hash table that call_rcu_before_fork and its two counterparts call. */
struct urcu_atfork {
	void (*before_fork)(void *priv);
	void (*after_fork_parent)(void *priv);
	void (*after_fork_child)(void *priv);
	void *priv;
};

/* The type of the flavor that cds_lfht_new_flavor takes. */
struct rcu_flavor_struct {
	void (*read_lock)(void);
	void (*read_unlock)(void);
	int (*read_ongoing)(void);
	void (*read_quiescent_state)(void);
	void (*update_call_rcu)(struct rcu_head *head, void (*func)(struct rcu_head *head));
	void (*update_synchronize_rcu)(void);
	void (*update_defer_rcu)(void (*fct)(void *p), void *p);
	void (*thread_offline)(void);
	void (*thread_online)(void);
	void (*register_thread)(void);
	void (*unregister_thread)(void);
	void (*barrier)(void);
	void (*register_rculfhash_atfork)(struct urcu_atfork *atfork);
	void (*unregister_rculfhash_atfork)(struct urcu_atfork *atfork);
};

AFTERWORK_ASSERT(sizeof(struct rcu_flavor_struct) == 14 * sizeof(void *), "fourteen functions");

/* The result of start_poll_synchronize_rcu. */
struct urcu_gp_poll_state {
	unsigned long grace_period_id;
};

/* The library's own symbols, which are documented at the functions below that call them. */
extern const struct rcu_flavor_struct aw_urcu_flavor;
extern const struct rcu_flavor_struct aw_qsbr_flavor;
int aw_rcu_read_lock_held(void);
void aw_synchronize_rcu(void);
void aw_rcu_barrier(void);
void aw_call_rcu(struct rcu_head *head, void (*func)(struct rcu_head *head));
unsigned long aw_start_poll_synchronize_rcu(void);
bool aw_poll_state_synchronize_rcu(unsigned long cookie);
void aw_urcu_register_thread(void);
void aw_urcu_unregister_thread(void);
void aw_defer_rcu(void (*fct)(void *p), void *p);
void aw_rcu_defer_barrier(void);
struct call_rcu_data *aw_create_call_rcu_data(unsigned long flags, int cpu_affinity);
void aw_call_rcu_data_free(struct call_rcu_data *crdp);
struct call_rcu_data *aw_get_default_call_rcu_data(void);
struct call_rcu_data *aw_get_cpu_call_rcu_data(int cpu);
struct call_rcu_data *aw_get_thread_call_rcu_data(void);
struct call_rcu_data *aw_get_call_rcu_data(void);
unsigned long aw_get_call_rcu_thread(struct call_rcu_data *crdp);
void aw_set_thread_call_rcu_data(struct call_rcu_data *crdp);
int aw_set_cpu_call_rcu_data(int cpu, struct call_rcu_data *crdp);
int aw_create_all_cpu_call_rcu_data(unsigned long flags);
void aw_free_all_cpu_call_rcu_data(void);
void aw_call_rcu_before_fork(void);
void aw_call_rcu_after_fork_parent(void);
void aw_call_rcu_after_fork_child(void);
void aw_urcu_register_rculfhash_atfork(struct urcu_atfork *atfork);
void aw_urcu_unregister_rculfhash_atfork(struct urcu_atfork *atfork);
void aw_qsbr_register_thread(void);
void aw_qsbr_unregister_thread(void);
void aw_qsbr_thread_online(void);
void aw_qsbr_thread_offline(void);
int aw_qsbr_read_ongoing(void);
void aw_qsbr_quiescent_state(void);
void aw_qsbr_call_rcu(struct rcu_head *head, void (*func)(struct rcu_head *head));
void aw_qsbr_synchronize_rcu(void);
void aw_qsbr_barrier(void);

/*
 * The names of one flavor. liburcu's documentation applies, with these differences:
 *
 * read_lock, read_unlock: sections nest up to 65534 deep. Must not be called in signal handlers.
 * register_thread: optional, except for qsbr. Without it, a thread's first section allocates.
 * synchronize_rcu, barrier, defer_barrier: inside a section these are misuse, and return at once.
 *   In qsbr they take the thread offline during the wait, as in liburcu. In the other flavors they
 *   are misuse if the thread is an online reader of qsbr.
 * call_rcu, defer_rcu: may be called inside a section and on any thread, registered or not.
 *   Callbacks run on a thread of the library. A child of fork does not have this thread, and drops
 *   pending callbacks. In qsbr that thread is an online reader during a callback of call_rcu, like
 *   liburcu's helpers, and about one call of call_rcu in sixty allocates memory.
 * defer_register_thread, defer_unregister_thread: the latter waits for deferred functions.
 * create_call_rcu_data and similar: these only store their arguments. get_call_rcu_thread waits for
 *   a grace period.
 * call_rcu_before_fork and similar: optional. They serve liburcu's hash table.
 */
#define AFTERWORK_URCU_COMMON(f)                                                                                      \
	static inline void urcu_##f##_init(void)                                                                      \
	{                                                                                                             \
	}                                                                                                             \
	static inline void urcu_##f##_exit(void)                                                                      \
	{                                                                                                             \
	}                                                                                                             \
	static inline struct urcu_gp_poll_state urcu_##f##_start_poll_synchronize_rcu(void)                           \
	{                                                                                                             \
		struct urcu_gp_poll_state state = { aw_start_poll_synchronize_rcu() };                                \
		return state;                                                                                         \
	}                                                                                                             \
	static inline bool urcu_##f##_poll_state_synchronize_rcu(struct urcu_gp_poll_state state)                     \
	{                                                                                                             \
		return aw_poll_state_synchronize_rcu(state.grace_period_id);                                          \
	}                                                                                                             \
	static inline void urcu_##f##_defer_rcu(void (*fct)(void *p), void *p)                                        \
	{                                                                                                             \
		aw_defer_rcu(fct, p);                                                                                 \
	}                                                                                                             \
	static inline int urcu_##f##_defer_register_thread(void)                                                      \
	{                                                                                                             \
		return 0;                                                                                             \
	}                                                                                                             \
	static inline void urcu_##f##_defer_unregister_thread(void)                                                   \
	{                                                                                                             \
		aw_rcu_defer_barrier();                                                                               \
	}                                                                                                             \
	static inline void urcu_##f##_defer_barrier(void)                                                             \
	{                                                                                                             \
		aw_rcu_defer_barrier();                                                                               \
	}                                                                                                             \
	static inline void urcu_##f##_defer_barrier_thread(void)                                                      \
	{                                                                                                             \
		aw_rcu_defer_barrier();                                                                               \
	}                                                                                                             \
	static inline void urcu_##f##_defer_exit(void)                                                                \
	{                                                                                                             \
	}                                                                                                             \
	static inline struct call_rcu_data *urcu_##f##_create_call_rcu_data(unsigned long flags, int cpu_affinity)    \
	{                                                                                                             \
		return aw_create_call_rcu_data(flags, cpu_affinity);                                                  \
	}                                                                                                             \
	static inline void urcu_##f##_call_rcu_data_free(struct call_rcu_data *crdp)                                  \
	{                                                                                                             \
		aw_call_rcu_data_free(crdp);                                                                          \
	}                                                                                                             \
	static inline struct call_rcu_data *urcu_##f##_get_default_call_rcu_data(void)                                \
	{                                                                                                             \
		return aw_get_default_call_rcu_data();                                                                \
	}                                                                                                             \
	static inline struct call_rcu_data *urcu_##f##_get_cpu_call_rcu_data(int cpu)                                 \
	{                                                                                                             \
		return aw_get_cpu_call_rcu_data(cpu);                                                                 \
	}                                                                                                             \
	static inline struct call_rcu_data *urcu_##f##_get_thread_call_rcu_data(void)                                 \
	{                                                                                                             \
		return aw_get_thread_call_rcu_data();                                                                 \
	}                                                                                                             \
	static inline struct call_rcu_data *urcu_##f##_get_call_rcu_data(void)                                        \
	{                                                                                                             \
		return aw_get_call_rcu_data();                                                                        \
	}                                                                                                             \
	static inline pthread_t urcu_##f##_get_call_rcu_thread(struct call_rcu_data *crdp)                            \
	{                                                                                                             \
		return (pthread_t)aw_get_call_rcu_thread(crdp);                                                       \
	}                                                                                                             \
	static inline void urcu_##f##_set_thread_call_rcu_data(struct call_rcu_data *crdp)                            \
	{                                                                                                             \
		aw_set_thread_call_rcu_data(crdp);                                                                    \
	}                                                                                                             \
	static inline int urcu_##f##_set_cpu_call_rcu_data(int cpu, struct call_rcu_data *crdp)                       \
	{                                                                                                             \
		int answer = aw_set_cpu_call_rcu_data(cpu, crdp);                                                     \
		if (answer < 0)                                                                                       \
			errno = -answer;                                                                              \
		return answer;                                                                                        \
	}                                                                                                             \
	static inline int urcu_##f##_create_all_cpu_call_rcu_data(unsigned long flags)                                \
	{                                                                                                             \
		return aw_create_all_cpu_call_rcu_data(flags);                                                        \
	}                                                                                                             \
	static inline void urcu_##f##_free_all_cpu_call_rcu_data(void)                                                \
	{                                                                                                             \
		aw_free_all_cpu_call_rcu_data();                                                                      \
	}                                                                                                             \
	static inline void urcu_##f##_call_rcu_before_fork(void)                                                      \
	{                                                                                                             \
		aw_call_rcu_before_fork();                                                                            \
	}                                                                                                             \
	static inline void urcu_##f##_call_rcu_after_fork_parent(void)                                                \
	{                                                                                                             \
		aw_call_rcu_after_fork_parent();                                                                      \
	}                                                                                                             \
	static inline void urcu_##f##_call_rcu_after_fork_child(void)                                                 \
	{                                                                                                             \
		aw_call_rcu_after_fork_child();                                                                       \
	}                                                                                                             \
	static inline void urcu_##f##_register_rculfhash_atfork(struct urcu_atfork *atfork)                           \
	{                                                                                                             \
		aw_urcu_register_rculfhash_atfork(atfork);                                                            \
	}                                                                                                             \
	static inline void urcu_##f##_unregister_rculfhash_atfork(struct urcu_atfork *atfork)                         \
	{                                                                                                             \
		aw_urcu_unregister_rculfhash_atfork(atfork);                                                          \
	}

/* The names of a flavor with sections. Its threads have nothing to report. */
#define AFTERWORK_URCU_SECTIONS(f)                                                                                    \
	static inline void urcu_##f##_read_lock(void)                                                                 \
	{                                                                                                             \
		afterwork_read_lock();                                                                                \
	}                                                                                                             \
	static inline void urcu_##f##_read_unlock(void)                                                               \
	{                                                                                                             \
		afterwork_read_unlock();                                                                              \
	}                                                                                                             \
	static inline int urcu_##f##_read_ongoing(void)                                                               \
	{                                                                                                             \
		return aw_rcu_read_lock_held();                                                                       \
	}                                                                                                             \
	static inline void urcu_##f##_quiescent_state(void)                                                           \
	{                                                                                                             \
	}                                                                                                             \
	static inline void urcu_##f##_thread_offline(void)                                                            \
	{                                                                                                             \
	}                                                                                                             \
	static inline void urcu_##f##_thread_online(void)                                                             \
	{                                                                                                             \
	}                                                                                                             \
	static inline void urcu_##f##_register_thread(void)                                                           \
	{                                                                                                             \
		aw_urcu_register_thread();                                                                            \
	}                                                                                                             \
	static inline void urcu_##f##_unregister_thread(void)                                                         \
	{                                                                                                             \
		aw_urcu_unregister_thread();                                                                          \
	}                                                                                                             \
	static inline void urcu_##f##_synchronize_rcu(void)                                                           \
	{                                                                                                             \
		aw_synchronize_rcu();                                                                                 \
	}                                                                                                             \
	static inline void urcu_##f##_barrier(void)                                                                   \
	{                                                                                                             \
		aw_rcu_barrier();                                                                                     \
	}                                                                                                             \
	static inline void urcu_##f##_call_rcu(struct rcu_head *head, void (*func)(struct rcu_head *head))            \
	{                                                                                                             \
		aw_call_rcu(head, func);                                                                              \
	}                                                                                                             \
	AFTERWORK_URCU_COMMON(f)

AFTERWORK_URCU_SECTIONS(memb)
AFTERWORK_URCU_SECTIONS(mb)
AFTERWORK_URCU_SECTIONS(signal)
AFTERWORK_URCU_SECTIONS(bp)
AFTERWORK_URCU_COMMON(qsbr)

#define urcu_memb_flavor aw_urcu_flavor
#define urcu_mb_flavor aw_urcu_flavor
#define urcu_signal_flavor aw_urcu_flavor
#define urcu_bp_flavor aw_urcu_flavor
#define urcu_qsbr_flavor aw_qsbr_flavor

/* Only bp has these names. The library itself detects forks. */
static inline void urcu_bp_before_fork(void)
{
}

static inline void urcu_bp_after_fork_parent(void)
{
}

static inline void urcu_bp_after_fork_child(void)
{
}

/* An online reader of qsbr is always in a section. */
static inline void urcu_qsbr_read_lock(void)
{
}

static inline void urcu_qsbr_read_unlock(void)
{
}

static inline int urcu_qsbr_read_ongoing(void)
{
	return aw_qsbr_read_ongoing();
}

static inline void urcu_qsbr_quiescent_state(void)
{
	afterwork_quiescent_state();
}

static inline void urcu_qsbr_thread_offline(void)
{
	aw_qsbr_thread_offline();
}

static inline void urcu_qsbr_thread_online(void)
{
	aw_qsbr_thread_online();
}

static inline void urcu_qsbr_register_thread(void)
{
	aw_qsbr_register_thread();
}

static inline void urcu_qsbr_unregister_thread(void)
{
	aw_qsbr_unregister_thread();
}

static inline void urcu_qsbr_call_rcu(struct rcu_head *head, void (*func)(struct rcu_head *head))
{
	aw_qsbr_call_rcu(head, func);
}

static inline void urcu_qsbr_synchronize_rcu(void)
{
	aw_qsbr_synchronize_rcu();
}

static inline void urcu_qsbr_barrier(void)
{
	aw_qsbr_barrier();
}

/*
 * The operations on pointers that readers load and writers change. The exchanges are full barriers.
 */
#ifdef AFTERWORK_URCU_POINTERS
#define rcu_dereference(p) __atomic_load_n(&(p), __ATOMIC_ACQUIRE)
#define rcu_set_pointer(p, v) AFTERWORK_STORE((p), (v), __ATOMIC_RELEASE)
#define rcu_assign_pointer(p, v) rcu_set_pointer(&(p), (v))
#define rcu_xchg_pointer(p, v) AFTERWORK_EXCHANGE((p), (v), __ATOMIC_SEQ_CST)
#define rcu_cmpxchg_pointer(p, old, _new)                                                                             \
	__extension__({                                                                                               \
		__typeof__(*(p)) afterwork_seen = (old), afterwork_new = (_new);                                      \
		(void)__atomic_compare_exchange_n((p), &afterwork_seen, afterwork_new, 0, __ATOMIC_SEQ_CST,           \
						  __ATOMIC_SEQ_CST);                                                  \
		afterwork_seen;                                                                                       \
	})
/* The names of the variants that programs can choose to inline. */
#define _rcu_dereference(p) rcu_dereference(p)
#define _rcu_set_pointer(p, v) rcu_set_pointer((p), (v))
#define _rcu_assign_pointer(p, v) rcu_assign_pointer(p, (v))
#define _rcu_xchg_pointer(p, v) rcu_xchg_pointer((p), (v))
#define _rcu_cmpxchg_pointer(p, old, _new) rcu_cmpxchg_pointer((p), (old), (_new))

/*
 * The functions for callers that cannot use macros. rcu_dereference_sym takes a pointer that was
 * already read, which orders later reads.
 */
static inline void *rcu_dereference_sym(void *p)
{
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return p;
}

/* Unlike rcu_dereference_sym, this loads the pointer itself. */
static inline void *rcu_dereference_sym2(void **p)
{
	return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

static inline void *rcu_set_pointer_sym(void **p, void *v)
{
	__atomic_store_n(p, v, __ATOMIC_RELEASE);
	return v;
}

static inline void *rcu_xchg_pointer_sym(void **p, void *v)
{
	return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);
}

static inline void *rcu_cmpxchg_pointer_sym(void **p, void *old, void *_new)
{
	(void)__atomic_compare_exchange_n(p, &old, _new, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	return old;
}
#endif

#ifdef __cplusplus
}
#endif

#include "urcu-older.h"

#endif
