/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Per-CPU data by the kernel's names, over the library afterwork.
 *
 * Each CPU that the machine may have owns a part. Differs from Linux: a thread may be moved between two instructions, for user
 * space cannot keep the system from preempting it. So the CPU that a thread finds itself on makes contention rare and excludes
 * nobody: this_cpu_add and its kin are atomic, and what is more than one word takes a pw_lock. There is no get_cpu_ptr.
 *
 * What is told of misuse, and what that does, stands in workqueue.h; here it is free_percpu of what is none, and pw_unlock of a
 * lock that nobody holds.
 */
#ifndef AFTERWORK_PERCPU_H
#define AFTERWORK_PERCPU_H

#include <afterwork/workqueue.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Marks a pointer that alloc_percpu returned; for the reader of the source. */
#ifndef __percpu
#define __percpu
#endif

/**
 * typedef pw_lock_t - the lock of one CPU's part
 *
 * Part of the per-CPU structure; all zeroes is one that is free, as alloc_percpu leaves it.
 */
typedef struct {
	uint32_t aw_private;
} pw_lock_t;

/* The library's own symbols; their contracts stand at the names below. */
unsigned int aw_raw_smp_processor_id(void);
bool aw_cpu_online(unsigned int cpu);
void *aw_alloc_percpu(size_t size, size_t align);
void aw_free_percpu(void *data);
void aw_pw_lock(pw_lock_t *lock);
bool aw_pw_trylock(pw_lock_t *lock);
void aw_pw_unlock(pw_lock_t *lock);
int aw_pw_runs_here(void);

/*
 * nr_cpu_ids - one more than the highest possible CPU number
 *
 * Set before main, and before a constructor without a priority. A program must not change it.
 */
extern unsigned int nr_cpu_ids AW_SYMBOL(aw_nr_cpu_ids);

/* num_possible_cpus - the same number. */
static inline unsigned int num_possible_cpus(void)
{
	return nr_cpu_ids;
}

/* raw_smp_processor_id - the CPU that the caller runs on, or did a moment ago. */
static inline unsigned int raw_smp_processor_id(void)
{
	return aw_raw_smp_processor_id();
}

/* cpu_online - whether a CPU is online; reads sysfs. */
static inline bool cpu_online(unsigned int cpu)
{
	return aw_cpu_online(cpu);
}

#define for_each_possible_cpu(cpu) for ((cpu) = 0; (unsigned int)(cpu) < num_possible_cpus(); (cpu)++)
/* Reads sysfs for each. */
#define for_each_online_cpu(cpu) for_each_possible_cpu(cpu) if (!aw_cpu_online((unsigned int)(cpu))) {} else

/**
 * __alloc_percpu - make zeroed data for each CPU
 * @size: of a part
 * @align: of a part, a power of two
 *
 * Returns the pointer that per_cpu_ptr and its kin take, which is not to be used as it is; NULL where there is no memory, and for
 * a size of 0. A part takes 128 bytes at least, so that none shares a line.
 */
static inline void *__alloc_percpu(size_t size, size_t align)
{
	return aw_alloc_percpu(size, align);
}

#ifdef __cplusplus
#define AW_ALIGNOF(type) alignof(type)
#else
#define AW_ALIGNOF(type) _Alignof(type)
#endif

/* alloc_percpu - __alloc_percpu of a type. */
#define alloc_percpu(type) ((type *)aw_alloc_percpu(sizeof(type), AW_ALIGNOF(type)))

/* free_percpu - free it; NULL is nothing. What is not per-CPU data, or was freed: misuse, nothing. */
static inline void free_percpu(void *data)
{
	aw_free_percpu(data);
}

/* The part of CPU at PTR, which points into the part of CPU 0: BASE is what alloc_percpu returned. */
static inline void *aw_per_cpu(const void *base, const void *ptr, unsigned int cpu)
{
	size_t stride = ((const size_t *)base)[-1];

	return (char *)(uintptr_t)ptr + stride * cpu;
}

/*
 * per_cpu_ptr - the part of a CPU, which is below nr_cpu_ids
 * this_cpu_ptr, raw_cpu_ptr - the part of the CPU that the caller runs on, or did a moment ago
 *
 * PTR is what alloc_percpu returned. Differs from Linux: a member's address is taken of the part, &per_cpu_ptr(p, cpu)->member, and
 * not of what was allocated.
 */
#define per_cpu_ptr(ptr, cpu) ((__typeof__(ptr))aw_per_cpu((ptr), (ptr), (unsigned int)(cpu)))
#define raw_cpu_ptr(ptr) per_cpu_ptr(ptr, aw_raw_smp_processor_id())
#define this_cpu_ptr(ptr) raw_cpu_ptr(ptr)

/*
 * this_cpu_read, _write, _add, _sub, _inc, _dec, _and, _or, _add_return, _xchg - of a word of this CPU's part
 *
 * PTR is what alloc_percpu(a type of integers) returned. Each is one atomic step on one CPU's part, relaxed: nothing is lost by a
 * thread that is moved in between. Differs from Linux: it takes the pointer, not the variable.
 */
#define this_cpu_read(ptr) __atomic_load_n(this_cpu_ptr(ptr), __ATOMIC_RELAXED)
#define this_cpu_write(ptr, v) __atomic_store_n(this_cpu_ptr(ptr), (v), __ATOMIC_RELAXED)
#define this_cpu_add(ptr, v) ((void)__atomic_fetch_add(this_cpu_ptr(ptr), (v), __ATOMIC_RELAXED))
#define this_cpu_sub(ptr, v) ((void)__atomic_fetch_sub(this_cpu_ptr(ptr), (v), __ATOMIC_RELAXED))
#define this_cpu_inc(ptr) this_cpu_add(ptr, 1)
#define this_cpu_dec(ptr) this_cpu_sub(ptr, 1)
#define this_cpu_and(ptr, v) ((void)__atomic_fetch_and(this_cpu_ptr(ptr), (v), __ATOMIC_RELAXED))
#define this_cpu_or(ptr, v) ((void)__atomic_fetch_or(this_cpu_ptr(ptr), (v), __ATOMIC_RELAXED))
#define this_cpu_add_return(ptr, v) __atomic_add_fetch(this_cpu_ptr(ptr), (v), __ATOMIC_RELAXED)
#define this_cpu_xchg(ptr, v) __atomic_exchange_n(this_cpu_ptr(ptr), (v), __ATOMIC_RELAXED)

/* ---- locks of parts, and work on them ---- */

/* pw_lock_init - lay out a lock that is free. */
static inline void pw_lock_init(pw_lock_t *lock)
{
	lock->aw_private = 0;
}

/**
 * pw_lock - take the lock of a part
 * @lock: a member of one CPU's part: &per_cpu_ptr(p, cpu)->lock
 *
 * Sleeps while another thread has it. Not recursive, and not in a signal handler. Differs from the kernel's proposal: a lock in
 * every mode, for threads of one CPU preempt each other; it takes the part's lock, and no CPU beside.
 */
static inline void pw_lock(pw_lock_t *lock)
{
	aw_pw_lock(lock);
}

/* pw_trylock - take it if it is free; returns whether it was. */
static inline bool pw_trylock(pw_lock_t *lock)
{
	return aw_pw_trylock(lock);
}

/* pw_unlock - give it back. Of one that nobody holds: misuse, nothing. */
static inline void pw_unlock(pw_lock_t *lock)
{
	aw_pw_unlock(lock);
}

/**
 * struct pw_struct - work on the part of a CPU
 * @work: what its function gets; container_of leads to the user's structure
 * @cpu: of which pw_get_cpu tells the function
 */
struct pw_struct {
	struct work_struct work;
	int cpu;
};

/* INIT_PW - lay out work that calls F, for CPU C. */
#define INIT_PW(pw, f, c)                \
	do {                             \
		INIT_WORK(&(pw)->work, f); \
		(pw)->cpu = (c);         \
	} while (0)

/* pw_get_cpu - the CPU on whose part a function is to work, which may not be the one that it runs on. */
static inline int pw_get_cpu(struct work_struct *work)
{
	return container_of(work, struct pw_struct, work)->cpu;
}

/**
 * queue_percpu_work_on - have work done on the part of a CPU
 * @cpu: of INIT_PW
 * @wq: where it is queued, if it is
 * @pw: the work
 *
 * By the tunable qpw of the environment (AFTERWORK=qpw=queue is the default): queued on @cpu as queue_work_on does, or
 * done by the caller, here and now, which disturbs nobody there. The function takes the lock of the part that pw_get_cpu names, and
 * so does the same either way. Returns false when it was queued already; done here, it is true.
 */
static inline bool queue_percpu_work_on(int cpu, struct workqueue_struct *wq, struct pw_struct *pw)
{
	if (!aw_pw_runs_here())
		return queue_work_on(cpu, wq, &pw->work);
	pw->work.func(&pw->work);
	return true;
}

/* flush_percpu_work - flush_work of what was queued; nothing where it was done by the caller. */
static inline bool flush_percpu_work(struct pw_struct *pw)
{
	return !aw_pw_runs_here() && flush_work(&pw->work);
}

/* As the fourth version of the kernel's proposal calls them. */
static inline bool pw_queue_on(int cpu, struct workqueue_struct *wq, struct pw_struct *pw)
{
	return queue_percpu_work_on(cpu, wq, pw);
}

static inline bool pw_flush(struct pw_struct *pw)
{
	return flush_percpu_work(pw);
}

#ifdef __cplusplus
}
#endif

#endif
