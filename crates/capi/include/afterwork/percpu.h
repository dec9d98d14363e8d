/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Per-CPU data with the kernel's names, implemented by the library afterwork.
 *
 * Each possible CPU of the machine has its own part of the data. Differs from Linux: a thread may
 * be migrated between any two instructions, because user space cannot prevent preemption. Using the
 * current CPU's part makes contention rare, but does not exclude other threads. this_cpu_add and
 * similar functions are therefore atomic, and larger updates need a pw_lock. There is no
 * get_cpu_ptr.
 *
 * workqueue.h describes how misuse is reported. Misuse in this header means calling free_percpu
 * with other memory, and calling pw_unlock with a lock that is not held.
 */
#ifndef AFTERWORK_PERCPU_H
#define AFTERWORK_PERCPU_H

#include <afterwork/workqueue.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Marks a pointer that alloc_percpu returned. It only informs readers of the source. */
#ifndef __percpu
#define __percpu
#endif

/**
 * typedef pw_lock_t - the lock of one CPU's part
 *
 * It is part of the per-CPU structure. A lock of all zeroes, as alloc_percpu returns it, is
 * unlocked.
 */
typedef struct {
	uint32_t aw_private;
} pw_lock_t;

/* The library's own symbols, which are documented at the functions below that call them. */
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
 * It is set before main and before any constructor without a priority. A program must not change
 * it.
 */
extern unsigned int nr_cpu_ids AW_SYMBOL(aw_nr_cpu_ids);

/* num_possible_cpus - the same number. */
static inline unsigned int num_possible_cpus(void)
{
	return nr_cpu_ids;
}

/* raw_smp_processor_id - the CPU of the caller at some moment during the call. */
static inline unsigned int raw_smp_processor_id(void)
{
	return aw_raw_smp_processor_id();
}

/* cpu_online - whether a CPU is online. Reads sysfs. */
static inline bool cpu_online(unsigned int cpu)
{
	return aw_cpu_online(cpu);
}

#define for_each_possible_cpu(cpu) for ((cpu) = 0; (unsigned int)(cpu) < num_possible_cpus(); (cpu)++)
/* for_each_online_cpu - loop over the online CPUs. Reads sysfs for each CPU. */
#define for_each_online_cpu(cpu) for_each_possible_cpu(cpu) if (!aw_cpu_online((unsigned int)(cpu))) {} else

/**
 * __alloc_percpu - allocate zeroed data for each CPU
 * @size: the size of a part
 * @align: the alignment of a part, a power of two
 *
 * Returns a pointer for per_cpu_ptr and similar macros. It must not be dereferenced directly.
 * Returns NULL if there is no memory, or if @size is 0. Each part takes at least 128 bytes.
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

/* alloc_percpu - __alloc_percpu for a type. */
#define alloc_percpu(type) ((type *)aw_alloc_percpu(sizeof(type), AW_ALIGNOF(type)))

/* free_percpu - free per-CPU data. Ignores NULL. Other memory is misuse, and is ignored. */
static inline void free_percpu(void *data)
{
	aw_free_percpu(data);
}

/*
 * Returns the address in the part of CPU that corresponds to PTR in the part of CPU 0, which begins
 * at BASE.
 */
static inline void *aw_per_cpu(const void *base, const void *ptr, unsigned int cpu)
{
	size_t stride = ((const size_t *)base)[-1];

	return (char *)(uintptr_t)ptr + stride * cpu;
}

/*
 * per_cpu_ptr - the part of a CPU, which is below nr_cpu_ids
 * this_cpu_ptr, raw_cpu_ptr - the part of the caller's CPU at some moment during the call
 *
 * PTR is the pointer that alloc_percpu returned. Differs from Linux: take the address of a member
 * from the part, &per_cpu_ptr(p, cpu)->member, and not from the allocated pointer.
 */
#define per_cpu_ptr(ptr, cpu) ((__typeof__(ptr))aw_per_cpu((ptr), (ptr), (unsigned int)(cpu)))
#define raw_cpu_ptr(ptr) per_cpu_ptr(ptr, aw_raw_smp_processor_id())
#define this_cpu_ptr(ptr) raw_cpu_ptr(ptr)

/*
 * this_cpu_read, _write, _add, _sub, _inc, _dec, _and, _or, _add_return, _xchg - operations on a
 * word of this CPU's part
 *
 * PTR is the pointer that alloc_percpu returned for an integer type. Each operation is one relaxed
 * atomic access to one part, so no update is lost if the thread is migrated. Differs from Linux:
 * the operations take the pointer instead of the variable.
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

/* pw_lock_init - initialize a lock as unlocked. */
static inline void pw_lock_init(pw_lock_t *lock)
{
	lock->aw_private = 0;
}

/**
 * pw_lock - acquire the lock of a part
 * @lock: a member of one CPU's part: &per_cpu_ptr(p, cpu)->lock
 *
 * Sleeps while another thread holds the lock. The lock is not recursive, and must not be used in
 * signal handlers. Differs from the kernel's proposal: this acquires the lock in every mode,
 * because threads on one CPU preempt each other, and it does not reserve the CPU.
 */
static inline void pw_lock(pw_lock_t *lock)
{
	aw_pw_lock(lock);
}

/* pw_trylock - acquire a lock if it is free. Returns true on success. */
static inline bool pw_trylock(pw_lock_t *lock)
{
	return aw_pw_trylock(lock);
}

/* pw_unlock - release a lock. If the lock is not held, this is misuse, and is ignored. */
static inline void pw_unlock(pw_lock_t *lock)
{
	aw_pw_unlock(lock);
}

/**
 * struct pw_struct - work on the part of a CPU
 * @work: the argument of its function; container_of leads to the caller's structure
 * @cpu: the CPU that pw_get_cpu returns to the function
 */
struct pw_struct {
	struct work_struct work;
	int cpu;
};

/* INIT_PW - initialize work that calls F for CPU C. */
#define INIT_PW(pw, f, c)                \
	do {                             \
		INIT_WORK(&(pw)->work, f); \
		(pw)->cpu = (c);         \
	} while (0)

/* pw_get_cpu - the CPU whose part a function must use, which may not be the current CPU. */
static inline int pw_get_cpu(struct work_struct *work)
{
	return container_of(work, struct pw_struct, work)->cpu;
}

/**
 * queue_percpu_work_on - run work on the part of a CPU
 * @cpu: as for INIT_PW
 * @wq: the queue, if the work is queued
 * @pw: the work
 *
 * The tunable qpw in the environment (AFTERWORK=qpw=queue is the default) decides where the
 * function runs. Either this queues it on @cpu, like queue_work_on, or the caller runs it at once
 * without disturbing that CPU. In both cases the function acquires the lock of the part that
 * pw_get_cpu names. Returns false if the work was already queued, and true if this call queued or
 * ran it.
 */
static inline bool queue_percpu_work_on(int cpu, struct workqueue_struct *wq, struct pw_struct *pw)
{
	if (!aw_pw_runs_here())
		return queue_work_on(cpu, wq, &pw->work);
	pw->work.func(&pw->work);
	return true;
}

/* flush_percpu_work - flush_work if work is queued. Does nothing if callers run it themselves. */
static inline bool flush_percpu_work(struct pw_struct *pw)
{
	return !aw_pw_runs_here() && flush_work(&pw->work);
}

/* These are the names in the fourth version of the kernel's proposal. */
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
